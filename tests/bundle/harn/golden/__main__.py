"""Write the golden documents."""

import asyncio

from tests.bundle.harn.golden.documents import HERE, documents

for name, content in asyncio.run(documents()).items():
    (HERE / name).write_bytes(content)
