"""Completion in bash, zsh and fish: their scripts, and the form in which each expects completions.

The scripts of click split words at `=` in bash, lose the quotation marks of a word, and cut values at a
comma. These scripts pass the command line up to the cursor unparsed.
"""

from __future__ import annotations

import os
import re
from typing import ClassVar, Final

from click.shell_completion import CompletionItem, ShellComplete, add_completion_class, split_arg_string

_BASH: Final = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
    # No space after a key: a value follows.
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=\\>] ]]; then
        compopt -o nospace
    fi
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_ZSH: Final = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a described keys values
    local type value help
    for type value help in "${(@f)$(env COMP_LINE="${(j: :)words[1,CURRENT]}" \\
        %(complete_var)s=zsh_complete "${words[1]}" 2>/dev/null)}"; do
        if [[ $type == file ]]; then
            compset -P '--*='
            _files
        elif [[ $type == plain && $help != _ ]]; then
            described+=("${value//:/\\\\:}:$help")
        elif [[ $type == plain && $value == *[=\\>] ]]; then
            keys+=("$value")
        elif [[ $type == plain ]]; then
            values+=("$value")
        fi
    done
    (( $#described )) && _describe -V unsorted described -U
    # No space after a key: a value follows.
    (( $#keys )) && compadd -U -S '' -V unsorted -a keys
    (( $#values )) && compadd -U -V unsorted -a values
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""
_FISH: Final = """\
function %(complete_func)s
    set -l line (commandline -cp | string join ' ')
    for completion in (env COMP_LINE="$line" %(complete_var)s=fish_complete (commandline -opc)[1] 2>/dev/null)
        set -l found (string split -m 1 ',' -- $completion)
        if test $found[1] = file
            set -l option (string match -r -- '^--[^=]*=' (commandline -ct))
            for path in (__fish_complete_path (string replace -r -- '^--[^=]*=' '' (commandline -ct)))
                echo $option$path
            end
        else
            echo $found[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments '(%(complete_func)s)'
"""
# Two dashes begin an option, and a dash with one letter may be one.
_NEGATION: Final = re.compile(r"-[\w(\"][\w.(\"]")
_ADDED: Final = " "


class _LineComplete(ShellComplete):
    """Completion of the command line up to the cursor, which the shell passes in COMP_LINE."""

    line = ""
    typed = ""
    """Part of the last word that click completes, without its quotation marks."""
    option = ""
    """Prefix `--NAME=` of the last word."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the last word, and the last word, which may be empty."""
        self.line = os.environ.get("COMP_LINE", "")
        # The last character makes it a word even after a space or a quotation mark.
        *words, last = split_arg_string(f"{self.line}x")
        self.typed = last[:-1]
        name, equals, value = self.typed.partition("=")
        if name.startswith("--") and equals:
            words.append(name)
            self.option, self.typed = f"{name}=", value
        # click would parse a word that begins with a dash as an option, but it may be a part of a filter.
        is_negation = _NEGATION.match(self.typed)
        return words[1:], f"{_ADDED if is_negation else ''}{self.typed}"

    def whole(self, item: CompletionItem[str]) -> str:
        """Return the word that replaces the last word."""
        return self.option + item.value.removeprefix(_ADDED)


class Bash(_LineComplete):
    """bash replaces only the part of the last word that follows a quotation mark or a `=`."""

    name: ClassVar[str] = "bash"
    source_template: ClassVar[str] = _BASH

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return the type and the replacement, with characters escaped that bash would interpret."""
        if item.type != "plain":
            return f"{item.type},"
        quote, begin = _open_quote(self.line)
        if not quote:
            begin = _after_break(self.line, os.environ.get("COMP_WORDBREAKS", ""))
        replaced = self.line[begin:] if quote == "'" else re.sub(r"\\(.)", r"\1", self.line[begin:])
        word = self.whole(item)
        position = len(self.option) + len(self.typed) - len(replaced)
        return f"plain,{_escaped(word[max(0, position) :], quote)}"


class Zsh(_LineComplete):
    """zsh replaces the whole last word, and quotes the replacement itself."""

    name: ClassVar[str] = "zsh"
    source_template: ClassVar[str] = _ZSH

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return three lines: the type, the word, and its description or `_`."""
        return f"{item.type}\n{self.whole(item)}\n{item.help or '_'}"


class Fish(_LineComplete):
    """fish replaces the whole last word, and quotes the replacement itself."""

    name: ClassVar[str] = "fish"
    source_template: ClassVar[str] = _FISH

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return the type, the word, and after a tab its description."""
        return f"{item.type},{self.whole(item)}{f'{chr(9)}{item.help}' if item.help else ''}"


def _open_quote(line: str) -> tuple[str, int]:
    """Return the quotation mark that is not closed, or an empty text, and the index after it."""
    quote, begin, is_escaped = "", 0, False
    for index, char in enumerate(line, 1):
        if is_escaped:
            is_escaped = False
        elif char == "\\" and quote != "'":
            is_escaped = True
        elif char == quote:
            quote = ""
        elif char in "'\"" and not quote:
            quote, begin = char, index
    return quote, begin


def _after_break(line: str, breaks: str) -> int:
    """Return the index after the last character that divides words for bash and is not escaped."""
    breaks_at = [
        match.end() for match in re.finditer(r"\\.|.", line, re.DOTALL) if match[0] in {*breaks, " "}
    ]
    return breaks_at[-1] if breaks_at else 0


def _escaped(text: str, quote: str) -> str:
    if quote == "'":
        return text.replace("'", r"'\''")
    return re.sub(r'(["$`\\])' if quote else r"([^\w@%+=:,./-])", r"\\\1", text)


for _shell in (Bash, Zsh, Fish):
    add_completion_class(_shell)
