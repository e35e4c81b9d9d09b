"""Write what the server says of itself to where the page's types are made from: python -m tests.e2e.openapi"""

import json
import tempfile
from pathlib import Path
from typing import Any

from penstock.server.app import create_app
from penstock.server.hosts import LOOPBACK
from tests.integration.serving import controlled

PLACE = Path(__file__).parents[2] / "ui/openapi.json"


def document(home: Path) -> dict[str, Any]:
    """The OpenAPI document of a server of this code."""
    with controlled(home, most_runs=0) as control:
        return dict(json.loads(create_app(control, allowed_hosts=LOOPBACK).state.openapi()))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        text = json.dumps(document(Path(place)), indent=1, sort_keys=True, ensure_ascii=False)
    PLACE.write_text(text + "\n")
