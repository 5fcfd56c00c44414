"""Models: the model interface, scripted and recorded models, and the models of all vendors.

A vendor's package is imported only when one of its models is called.
"""

from .port import Model, ModelCall, Provider, split_ref
from .pydantic_ai import PydanticAIProvider, provider
from .recorded import RecordedModel
from .registry import Models, faults
from .scripted import Cut, Fail, Say, ScriptedModel, Use, check_prompt, offline

__all__ = [
    "Cut",
    "Fail",
    "Model",
    "ModelCall",
    "Models",
    "Provider",
    "PydanticAIProvider",
    "RecordedModel",
    "Say",
    "ScriptedModel",
    "Use",
    "check_prompt",
    "faults",
    "offline",
    "provider",
    "split_ref",
]


def __dir__() -> list[str]:
    return sorted(__all__)
