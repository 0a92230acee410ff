"""The picture of the rooms in docs/extend/house.md; `python tests/helpers/room_imports.py` writes it again."""

import re
import sys
from pathlib import Path

HOUSE = Path(__file__).parents[2] / "docs" / "extend" / "house.md"
BLOCK = re.compile(r"(<!-- rooms: generated -->\n\n```text\n)(.*?)(```\n\n<!-- rooms: end -->)", re.DOTALL)


def draw_rooms() -> str:
    """List each room, the highest first, with the rooms that it imports from, by the source."""
    from test_layers import FILES, LAYERS, MODULES, imported

    small_files, *layers = LAYERS
    lines = []
    for layer in reversed(layers):
        for room in layer:
            targets = set()
            for name, path in FILES.items():
                if name.split(".")[1:2] == [room]:
                    module, is_package = name.removesuffix(".__init__"), path.name == "__init__.py"
                    targets |= imported(path.read_text(), module, MODULES, is_package)
            rooms = {target.split(".")[1] for target in targets if "." in target}
            lines.append(f"{room:10}{' '.join(sorted(rooms - {room, *small_files}))}".rstrip())
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    HOUSE.write_text(BLOCK.sub(lambda found: found[1] + draw_rooms() + found[3], HOUSE.read_text()))
