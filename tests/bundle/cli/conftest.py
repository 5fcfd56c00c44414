"""The command line in this process, as its own tests run it."""

from tests.cli.agents import shop_folder
from tests.cli.conftest import _far_from_home, cli, url

__all__ = ["_far_from_home", "cli", "shop_folder", "url"]
