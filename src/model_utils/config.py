"""The configuration: defaults, then a flat YAML file, then `--key value`, checked against `schema.py`.

The YAML is composed into nodes and never constructed into objects: no tag can run code, no alias is unfolded,
and PyYAML's guesses (`1e-3` is text, `017` is 15, `1:30` is 90) do not apply.
"""

from __future__ import annotations

import difflib
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from easydict import EasyDict

from src.errors import UserError
from src.model_utils.key import Key
from src.model_utils.schema import CONFIG_PATH, GROUPS, RETIRED, SCHEMA
from src.model_utils.values import Raw, abbreviated
from src.user_files import open_regular

MAX_FILE_BYTES = 256 * 1024
_PLAIN_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")


def load_config(
    argv: Iterable[str] | None = None,
    *,
    prog: str = "train.py",
    description: str = "",
    required: Iterable[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> EasyDict:
    """Return every key of the schema, and `config_path`, with checked values. Nobody changes the result.

    `given` names the keys that the file or the command line set.

    Args:
        argv: the arguments after the program's name; None takes those of the process.
        prog: name of the script, for `--help`.
        description: what the script does, for `--help`.
        required: keys that the script cannot do without.
        defaults: of this script, instead of the schema's.

    Raises:
        UserError: names the file and line, or the command line, and the key.
        SystemExit: code 0, after `--help`.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    if "-h" in argv or "--help" in argv:
        sys.stdout.write(_help_text(prog, description))
        raise SystemExit(0)
    config = {key.name: key.default_value() for key in (CONFIG_PATH, *SCHEMA.values())}
    config.update(defaults or {})
    given = _read_argv(argv)
    if given.get("config_path"):
        given = {**config_from_yaml(_read_text(given["config_path"]), given["config_path"]), **given}
    config = EasyDict({**config, **given, "given": tuple(given)})
    check_given(config, required)
    if not config.resume:  # whose other half may be in the checkpoint
        check_together(config)
    return config


def check_given(config: Mapping[str, Any], required: Iterable[str]) -> None:
    """Raise `UserError` for the first of the keys that has no value."""
    for name in required:
        if config[name] in (None, ""):
            file = config["config_path"] or "a YAML file for --config_path"
            raise UserError(
                f"{name} is not set ({SCHEMA[name].help}): "
                f"give --{name} VALUE, or write '{name}: VALUE' into {file}"
            )


def config_from_yaml(text: str, place: str) -> dict[str, Any]:
    """Return the checked values of the keys in `text`, which came from `place`. Raises `UserError`."""
    values: dict[str, Any] = {}
    for where, name, raw in _pairs(text, place):
        _require_known(name, SCHEMA, where)
        _add(values, SCHEMA[name], raw, where)
    return values


def config_to_yaml(config: Mapping[str, Any]) -> str:
    """Return YAML text of all keys, grouped, that `load_config` reads back to the same values."""
    blocks = []
    for group, keys in GROUPS.items():
        values = {key.name: config[key.name] for key in keys}
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=float("inf"))
        blocks.append(f"# {group}\n{text}")
    return "\n".join(blocks)


def _help_text(prog: str, description: str) -> str:
    """Return what `--help` prints: usage, description and every key, as wide as the terminal."""
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    column = max(map(len, SCHEMA)) + 6

    def entry(key: Key) -> str:
        default = key.default if key.default and key.type != "bool" else json.dumps(key.default)
        words = f"{key.help} ({key.accepts}; default {default})"
        start = f"  --{key.name}".ljust(column)
        return textwrap.fill(
            words, width, initial_indent=start, subsequent_indent=" " * column, break_on_hyphens=False
        )

    blocks = [f"usage: {prog} [--config_path FILE] [--key value ...]"]
    if description:
        blocks.append(textwrap.fill(description, width))
    blocks.append("\n".join([entry(CONFIG_PATH), "  --help".ljust(column) + "print this text and exit"]))
    blocks.extend("\n".join([f"{group}:", *map(entry, keys)]) for group, keys in GROUPS.items())
    return "\n\n".join(blocks) + "\n"


def check_together(config: Mapping[str, Any]) -> None:
    """Raise `UserError` for keys that deny each other."""
    if config.batch_size % config.batch_split:
        raise UserError(
            f"batch_size {config.batch_size} is not a multiple of batch_split {config.batch_split}: "
            "the parts of a batch must be equal; change one of the two"
        )


def _read_argv(argv: list[str]) -> dict[str, Any]:
    keys = {**SCHEMA, CONFIG_PATH.name: CONFIG_PATH}
    values: dict[str, Any] = {}
    arguments = iter(argv)
    for argument in arguments:
        if not argument.startswith("--") or argument == "--":
            raise UserError(
                f"command line: expected --key value, got {abbreviated(argument)}; "
                "lists are written 128,96 and texts with spaces in quotes"
            )
        name, equals, raw = argument[2:].partition("=")
        _require_known(name, keys, "command line")
        if not equals:
            raw = next(arguments, "--")
            if raw.startswith("--"):
                example = "true or false" if keys[name].type == "bool" else "VALUE"
                raise UserError(f"command line: --{name} needs a value: write --{name} {example}")
        _add(values, keys[name], raw, "command line")
    return values


def _require_known(name: str, keys: Mapping[str, Key], place: str) -> None:
    if name in RETIRED:
        raise UserError(f"{place}: {name} is gone; {RETIRED[name]}")
    if name not in keys:
        near = difflib.get_close_matches(name.lower().replace("-", "_"), keys, n=1)
        hint = f"did you mean '{near[0]}'?" if near else "--help lists the keys"
        raise UserError(f"{place}: unknown key {abbreviated(name)}; {hint}")


def _add(values: dict[str, Any], key: Key, raw: Raw, place: str) -> None:
    if key.name in values:
        raise UserError(f"{place}: {key.name} is given twice; keep one of the two")
    try:
        values[key.name] = key.parse(raw)
    except ValueError as error:
        raise UserError(f"{place}: {key.name}: {error}") from None


def _pairs(text: str, path: str) -> Iterator[tuple[str, str, Raw]]:
    """Yield (file:line, key, text or list of texts) of YAML text that is a flat mapping."""
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        problem = ", ".join(filter(None, [error.context, error.problem]))
        raise UserError(f"{path}:{error.problem_mark.line + 1}: not valid YAML: {problem}") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{path}:{line}: not valid YAML: character {chr(error.character)!a}") from None
    except (RecursionError, ValueError, OverflowError) as error:  # [[[[..., or the escape \UFFFFFFFF
        raise UserError(f"{path}: cannot be read as YAML: {error}") from None
    if root is None or root.value == "":
        return
    _refuse_tag(root, path)
    if not isinstance(root, yaml.MappingNode):
        raise UserError(f"{path}:{_line(root)}: expected lines 'key: value', got a {root.id}")
    for key, value in root.value:
        place = f"{path}:{_line(key)}"
        yield place, _scalar(key, path, "a key"), _value(value, path, abbreviated(key.value))


def _read_text(path: str) -> str:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path}: cannot read the YAML file of --config_path: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise UserError(f"{path}: larger than {MAX_FILE_BYTES} bytes, so this is no configuration")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from None


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _scalar(node: yaml.Node, path: str, what: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise UserError(f"{path}:{_line(node)}: {what} must be plain text, got a {node.id}; the file is flat")
    _refuse_tag(node, path)
    return node.value


def _value(node: yaml.Node, path: str, key: str) -> Raw:
    if isinstance(node, yaml.SequenceNode):
        _refuse_tag(node, path)
        return [_scalar(item, path, f"each entry of {key}") for item in node.value]
    return _scalar(node, path, f"the value of {key}")


def _refuse_tag(node: yaml.Node, path: str) -> None:
    if node.tag not in _PLAIN_TAGS:
        raise UserError(f"{path}:{_line(node)}: the tag {abbreviated(node.tag)} is refused; remove it")
