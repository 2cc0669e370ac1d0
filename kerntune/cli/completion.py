"""``kerntune --completion bash|zsh``: a script for the shell, made of the commands and options that there are."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentParser, _SubParsersAction
from collections.abc import Iterator

SCRIPT = """\
# {use}
_kerntune() {{
  local words="" node="" last="" word next
  for word in "${{{array}[@]:{begin}:{count}}}"; do
    next="${{node:+$node/}}$word"
    case " {commands} " in *" $next "*) node="$next" ;; esac
    last="$word"
  done
  case "$node:$last" in
{values}    *) case "$node" in
{words}    esac ;;
  esac
{reply}
}}
{register}
"""

BASH = {
    "use": 'of kerntune: eval "$(kerntune --completion bash)", in ~/.bashrc',
    "array": "COMP_WORDS",
    "begin": "1",
    "count": "$((COMP_CWORD-1))",
    "reply": '  local current="${COMP_WORDS[COMP_CWORD]}"\n  COMPREPLY=($(compgen -W "$words" -- "$current"))',
    "register": "complete -o default -F _kerntune kerntune",
}

ZSH = {
    "use": 'of kerntune: eval "$(kerntune --completion zsh)", in ~/.zshrc after compinit',
    "array": "words",
    "begin": "1",
    "count": "$((CURRENT-2))",
    "reply": "  [[ -n $words_of ]] && compadd -- ${=words_of}\n  _files",
    "register": "compdef _kerntune kerntune",
}
"""zsh has its words in ``words``, so that ours have another name there."""


def script(shell: str, parser: ArgumentParser) -> str:
    """The script. It completes commands, options, and what an option can be; all else are files."""
    nodes = dict(_nodes(parser, ""))
    fields = dict(BASH if shell == "bash" else ZSH)
    commands = " ".join(path for path in nodes if path)
    words = "".join(f'      "{path}") words="{" ".join(_words(node))}" ;;\n' for path, node in nodes.items())
    values = "".join(f'    "{path}:{option}") words="{found}" ;;\n' for path, option, found in _values(nodes))
    text = SCRIPT.format(commands=commands, words=words, values=values, **fields)
    return text if shell == "bash" else re.sub(r"\bwords=", "words_of=", text)


def _nodes(parser: ArgumentParser, path: str) -> Iterator[tuple[str, ArgumentParser]]:
    yield path, parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for name, below in action.choices.items():
                yield from _nodes(below, f"{path}/{name}" if path else name)


def _words(parser: ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            yield from action.choices
        elif action.help != SUPPRESS:
            yield from (option for option in action.option_strings if option.startswith("--"))


def _values(nodes: dict[str, ArgumentParser]) -> Iterator[tuple[str, str, str]]:
    for path, parser in nodes.items():
        for action in parser._actions:
            if action.option_strings and action.choices is not None:
                yield path, action.option_strings[-1], " ".join(map(str, action.choices))
