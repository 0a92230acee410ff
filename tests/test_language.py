"""Rules of language: docstrings begin with a verb, names say their content, what is in back-quotes exists.

Lists of exceptions only shrink: an exception that is none any more fails, too.
"""

import ast
import builtins
import functools
import keyword
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "jaxcontact"
NO_CONTENT = frozenset(
    [
        "here",
        "each",
        "own",
        "one",
        "known",
        "given",
        "made",
        "kept",
        "taken",
        "who",
        "fine",
        "whole",
        "least",
        "most",
        "room",
        "told",
    ]
)
SCREEN = 80  # lines of a function, with its docstring
PARAMETERS = 8  # of a function; those that travel together are a record
FILE = 430  # lines of a file
POWERS_OF_EPS = 11  # without a name of `tolerances`, in steps and events; this number only falls
VAGUE_PER_1000 = 1.9  # lines with `Any` of a thousand; this number only falls
# Names of other packages in docstrings, and our own short name.
IN_S = {"Pass", "Process", "Express", "Cross", "Compress", "Guess", "Need", "Embed", "Feed", "Bring"}
OTHERS = {"jc", "jax", "jaxcontact", "sharding", "distributed", "shard_map", "jaxtyping"}
# An opening that is no verb in the imperative; a word in -s after it ("Returns") is none either.
NO_VERB = re.compile(
    r"(?:The|A|An|What|Whether|As|Of|Where|How|Those|All|Each|One|This|These|Its|It|No|With|In|At|From|For|By|To|Two|"
    r"Three|Some|Any|That|Which|Who|When|If|On|Not|Only|Both|Every|Same|Largest|Least|Lowest|First|Last|Nearest|"
    r"Numbers|Names|Bits?|Values?|Rows?|Rates|States|Gaps?|Points|Positions|Velocity|Velocities|"
    r"Impulses?|Forces?|Mean|Gradient|Derivatives?|Status|True|None|Like|Without|Between|Called)\b|[^A-Za-z]"
)


@functools.cache
def sources():
    """Paths and syntax trees of the modules of the package."""
    return [(path, ast.parse(path.read_text())) for path in sorted(ROOT.rglob("*.py"))]


@functools.cache
def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_property(function):
    names = {getattr(d, "id", getattr(d, "attr", "")) for d in function.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def begins_without_verb(path, tree):
    """Docstrings of functions that begin with no verb; those of properties say what they are."""
    for function in functions(tree):
        text = ast.get_docstring(function)
        if not text or is_property(function):
            continue
        first = re.split(r"[\s,.:]", text, maxsplit=1)[0]
        if NO_VERB.match(text) or (first.endswith(("s", "ed", "ing")) and first not in IN_S):
            yield f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {text.splitlines()[0][:60]}"


def names_without_content(path, tree):
    """Variables, parameters and fields with one of the words that say nothing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if name.strip("_") in NO_CONTENT:
            yield f"{path.relative_to(ROOT)}:{node.lineno} {name}"


def words_of(trees):
    """Every identifier that the package knows, and every string that is one."""
    words = set(dir(builtins)) | set(keyword.kwlist) | OTHERS
    for path, tree in trees:
        words |= {path.stem, path.name, path.parent.name}
        for node in ast.walk(tree):
            for field in ("id", "attr", "arg", "name", "module", "asname"):
                value = getattr(node, field, None)
                if isinstance(value, str):
                    words |= set(value.split("."))
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words |= set(re.findall(r"[A-Za-z_]\w*", node.value)) if node.value.isidentifier() else set()
    return words


def unresolved_quotes(path, tree, words):
    """Names in back-quotes of docstrings that are no module, function, parameter, field or file."""
    texts = [(node, ast.get_docstring(node)) for node in ast.walk(tree)
             if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module)]  # fmt: skip
    for node, text in texts:
        for quoted in re.findall(r"`([^`\n]+)`", text or ""):
            if quoted.endswith((".py", ".pyi")):
                exists = bool(list(ROOT.rglob(quoted.split("/")[-1])))
            else:
                exists = not re.fullmatch(r"[A-Za-z_][\w.]*", quoted) or set(quoted.split(".")) <= words
            if not exists:
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} `{quoted}`"


def bare_constants(path, tree):
    """Numbers at the top of a module without a comment beside them or above that says why."""
    lines = path.read_text().splitlines()
    for node in tree.body:
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name, value = node.targets[0].id, node.value
        number = (
            isinstance(value, ast.Constant)
            and isinstance(value.value, int | float)
            and not isinstance(value.value, bool)
        )
        number = number or (isinstance(value, ast.BinOp) and all(
            isinstance(part, ast.Constant) for part in (value.left, value.right)))  # fmt: skip
        if name.isupper() and number:
            commented = "#" in lines[node.end_lineno - 1] or lines[node.lineno - 2].lstrip().startswith("#")
            if not commented:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {name}"


def long_functions(path, tree):
    """Functions longer than a screen."""
    for function in functions(tree):
        length = function.end_lineno - function.lineno + 1
        if length > SCREEN:
            yield f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {length} lines"


def count_parameters(function):
    """Count the parameters of a function without `self` and `cls`."""
    arguments = function.args
    names = [node.arg for node in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    stars = [node for node in (arguments.vararg, arguments.kwarg) if node]
    return len(names) - (names[:1] in (["self"], ["cls"])) + len(stars)


def many_parameters(path, tree):
    """Functions with more parameters than a call shows at a glance."""
    for function in functions(tree):
        if count_parameters(function) > PARAMETERS:
            yield f"{path.relative_to(ROOT)}:{function.lineno} {function.name}: {count_parameters(function)}"


def long_files(path, tree):
    """Files longer than one idea."""
    length = len(path.read_text().splitlines())
    if length > FILE:
        yield f"{path.relative_to(ROOT)}: {length} lines"


# Of two methods each: the names of a law and of its solver, and of the settings of two rooms.
SHARED = {"Newton", "Settings"}


def names_of_two_classes(trees):
    """Names of classes that have two meanings, with those of one file."""
    places = {}
    for path, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    return {name: files for name, files in places.items() if len(files) > 1}


def test_a_class_has_a_name_of_its_own():
    assert names_of_two_classes(sources()).keys() == SHARED, names_of_two_classes(sources())


RULES = (
    "docstring without a verb", "name without content", "quoted name that is nowhere", "constant without a reason",
    "function longer than a screen", "function with many parameters", "long file",
)  # fmt: skip


@functools.cache
def breaches():
    """Places that break each rule, by rule and room."""
    trees = sources()
    words = words_of(trees)
    found = {rule: {} for rule in RULES}
    for path, tree in trees:
        parts = path.relative_to(ROOT).parts
        room = parts[0] if len(parts) > 1 else "(top)"
        for rule, places in zip(found, (
            begins_without_verb(path, tree), names_without_content(path, tree),
            unresolved_quotes(path, tree, words), bare_constants(path, tree), long_functions(path, tree),
            many_parameters(path, tree), long_files(path, tree),
        ), strict=True):  # fmt: skip
            found[rule].setdefault(room, []).extend(places)
    return found


@pytest.mark.parametrize("rule", RULES)
def test_no_room_breaks_a_rule(rule):
    places = [place for room in breaches()[rule].values() for place in room]
    assert not places, f"{rule}:\n" + "\n".join(places)


def test_powers_of_eps_have_names():
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path, _ in sources()
        for line in path.read_text().splitlines()
        if re.search(r"\b(?:eps|EPS)\)? ?\*\* ?-?[0-9]", line)
        and not re.search(r"\(\S+ \* (?:floats\.)?eps\) \*\* 2", line)  # squares of multiples of eps
    ]
    assert len(found) == POWERS_OF_EPS, "\n".join(found)


def test_few_annotations_say_nothing():
    lines = [line for path, _ in sources() for line in path.read_text().splitlines()]
    vague = [line for line in lines if re.search(r"\bAny\b", line)]
    assert 1000 * len(vague) <= VAGUE_PER_1000 * len(lines), f"Any in {len(vague)} of {len(lines)} lines"


def test_an_annotation_that_says_nothing_has_a_reason():
    """On its line, or for a file where it is imported."""
    bare = []
    for path, tree in sources():
        lines = path.read_text().splitlines()
        if any(re.search(r"import .*\bAny\b.*# Any: ", line) for line in lines):
            continue
        numbers = {n.lineno for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "Any"}
        bare += [
            f"{path.relative_to(ROOT)}:{n}: {lines[n - 1].strip()}"
            for n in sorted(numbers)
            if "#" not in lines[n - 1]
        ]
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize(
    ("rule", "source", "broken"),
    [
        (begins_without_verb, 'def f():\n    """The mode of each lane."""', 1),
        (begins_without_verb, 'def f():\n    """Returns a mode."""', 1),
        (begins_without_verb, 'def f():\n    """Choose a mode for each lane."""', 0),
        (names_without_content, "here = 1\ndef f(kept, state):\n    return kept", 2),
        (long_functions, "def f():\n" + 80 * "    pass\n", 1),
        (long_functions, "def f():\n" + 79 * "    pass\n", 0),
        (many_parameters, "def f(self, a, b, c, d, e, f, g, h): pass", 0),
        (many_parameters, "def f(a, b, c, d, e, f, g, *, h, i): pass", 1),
        (bare_constants, "TIE = 1e-2", 1),
        (bare_constants, "TIE_FRACTION = 1e-2  # of eps; closer guards cross together", 0),
    ],
)
def test_the_rules_themselves(tmp_path, rule, source, broken):
    path = ROOT / "status.py"
    if rule is bare_constants:
        path = tmp_path / "one.py"
        path.write_text(source)
        assert len([x for x in _places(rule, path, source)]) == broken
        return
    assert len(list(rule(path, ast.parse(source)))) == broken


def _places(rule, path, source):
    """Places of a rule in a file outside of the package."""
    try:
        return list(rule(path, ast.parse(source)))
    except ValueError:  # not below the package: it was about to name the place
        return [path]
