"""What `--help` prints, and what a shell completes: options under their heads, whole sentences, and examples."""

from __future__ import annotations

import functools
import inspect
import keyword
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from pareto import COMMAND, DATA, RESULTS
from pareto.errors import UserError
from pareto.options import EFFORT, HOSTS, LINK, OPTIONS, WHAT, Option
from pareto.options import RESULTS as OF_RESULTS

Function = TypeVar("Function", bound=Callable[..., None])
COMPLETE = "_PARETO_COMPLETE"
"""The variable by which a shell says that it wants completions, and of which kind."""
Shell = Literal["bash", "zsh", "fish"]
_EXAMPLES = {
    "": (
        "--model mobilenetv2 --netem 200ms-5mbit",
        "report results/example",
        "advise results/example --latency 20ms --rate 30mbit",
    ),
    "run": (
        "--model mobilenetv2 --netem 80ms-20mbit --quick",
        "--model mobilenetv2 --netem lte,wifi --until 5%",
        "run sweeps/neurosurgeon.yaml --dry-run",
    ),
    "report": ("report results/example", "report results/example --where 'latency_s < 200ms'"),
    "compare": ("compare results/before results/after",),
    "advise": ("advise results/example --latency 20ms --rate 30mbit",),
    "partitions": ("partitions mobilenetv2", "partitions resnet50 --granularity op --prove"),
    "profile": ("profile mobilenetv2 --testbed lab.yaml",),
    "predict": ("predict mobilenetv2 --netem lte --hosts 3",),
    "netem": ("netem list", "netem check 80ms-20mbit"),
    "netem list": ("netem list",),
    "netem check": ("netem check 80ms-20mbit --duration 10s",),
    "hosts": ("hosts add pi@192.0.2.7 --role edge --testbed lab.yaml", "hosts setup --testbed lab.yaml"),
    "hosts add": ("hosts add pi@192.0.2.7 --role edge --testbed lab.yaml",),
    "hosts list": ("hosts list --testbed lab.yaml",),
    "hosts setup": ("hosts setup --testbed lab.yaml",),
    "doctor": ("doctor", "doctor --testbed lab.yaml"),
    "serve": ("serve", "serve --listen 192.0.2.1:7410"),
    "fleet": (
        "fleet certificates lab",
        "fleet scheduler --listen tls://192.0.2.1:8786 --certificates lab",
        "fleet join --scheduler tls://192.0.2.1:8786 --certificates lab --testbed lab1.yaml",
        "--model mobilenetv2 --netem wifi --cluster tls://192.0.2.1:8786 --certificates lab",
    ),
    "fleet certificates": ("fleet certificates lab",),
    "fleet scheduler": ("fleet scheduler --listen tls://192.0.2.1:8786 --certificates lab",),
    "fleet join": ("fleet join --scheduler tls://192.0.2.1:8786 --certificates lab --testbed lab1.yaml",),
    "completion": ("completion bash >> ~/.bashrc",),
}
"""What is typed after the program's name, by command."""
_VALUES = {
    "model": "mobilenetv2 resnet18 resnet50 alexnet vgg16 inceptionv3 squeezenet1_1",
    "backend": "tcp tcp:4 rpc rpc:basic",
    "secure": "none tls",
    "codec": "none fp16 int8 uint4 zstd lz4 blosc2 int8+lz4",
    "engine": "eager compile onnx",
    "allocator": "tuned default",
    "granularity": "block op",
    "weights": "seeded pretrained",
    "testbed": "local simulated",
    "shape_at": "both edge",
}
_HEADS = ("Arguments", WHAT, LINK, HOSTS, EFFORT, OF_RESULTS, "Options")


class _WithExamples:
    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples of a command as they are typed: not wrapped, so that they can be copied."""
        lines = _EXAMPLES[ctx.command_path.removeprefix(COMMAND).strip()]
        with formatter.section("Example" if len(lines) == 1 else "Examples"):
            for line in lines:
                formatter.write(f"  {COMMAND} {line}\n")


class Command(_WithExamples, TyperCommand):
    """A command whose options stand under their heads in `--help`, and whose examples are not wrapped."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left. Refuses an option that stands there twice, of which one would not count."""
        _, _, order = self.make_parser(ctx).parse_args(args=[*args])
        for parameter, times in Counter(order).items():
            if (
                times > 1
                and parameter.param_type_name == "option"
                and not (parameter.multiple or parameter.is_eager)
            ):
                option = OPTIONS.get(parameter.name.rstrip("_"))
                commas = ", and several values with commas" if option and option.takes_several else ""
                raise UserError(f"{parameter.opts[0]} stands there {times} times: give it once{commas}")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        heads: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                is_argument = parameter.param_type_name == "argument"
                head = (
                    "Arguments" if is_argument else getattr(parameter, "rich_help_panel", None) or "Options"
                )
                name, words = record
                heads.setdefault(head, []).append((_plain_name(name, is_argument), _plain_default(words)))
        for head in sorted(heads, key=_HEADS.index):
            with formatter.section(head):
                formatter.write_dl(heads[head])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The pieces of the usage line, without braces around what must be given."""
        return [
            piece.translate({ord("{"): None, ord("}"): None}) for piece in super().collect_usage_pieces(ctx)
        ]


def _plain_name(name: str, is_argument: bool) -> str:
    """What is typed, and of an option the kind of its value: `<path>` for each of a list of paths, too."""
    kind = "" if is_argument else r"<\1>"
    return re.sub(r" ?<(?:list\[)?(\w+)[^>]*>", f" {kind}", name).rstrip().replace("<Path>", "<path>")


def _plain_default(words: str) -> str:
    """The help with its default as all options have it: `[results]`."""
    return re.sub(r"\[default: \(?(.*?)\)?(; [^]]*)?\]$", r"[\1]", words)


class Group(_WithExamples, TyperGroup):
    """Commands under their heads, each with its whole sentence."""

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        if ctx.parent is None:
            formatter.write_usage(COMMAND, "--model MODEL [--netem NETWORK] [OPTIONS]   a sweep")
            formatter.write_usage(COMMAND, "COMMAND [OPTIONS]", "       ")
        else:
            super().format_usage(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        heads: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command = self.commands[name]
            head = getattr(command, "rich_help_panel", None) or "Commands"
            heads.setdefault(head, []).append((name, " ".join((command.help or "").split())))
        for head, rows in heads.items():
            with formatter.section(head):
                formatter.write_dl(rows)


def takes(*names: str) -> Callable[[Function], Function]:
    """A decorator: the command has these options of a sweep too, and gets as keywords those that the user types."""

    def declare(command: Function) -> Function:
        @functools.wraps(command)
        def given(**arguments: Any) -> None:
            typed = {
                name: value
                for name, value in ((key.rstrip("_"), value) for key, value in arguments.items())
                if value is not None or name not in names
            }
            command(**typed)

        own = inspect.signature(command, eval_str=True)
        ahead, after = [
            [each for each in own.parameters.values() if each.kind is kind]
            for kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        ]
        shared = [_parameter(OPTIONS[name]) for name in names]
        given.__signature__ = own.replace(parameters=[*ahead, *shared, *after])  # type: ignore[attr-defined]
        return cast(Function, given)

    return declare


def _parameter(option: Option) -> inspect.Parameter:
    reserved = keyword.iskeyword(option.key)
    switch = (option.switch,) if option.switch else (option.typed,) if reserved else ()
    info = typer.Option(
        None,
        *switch,
        help=option.described,
        metavar=option.metavar or None,
        rich_help_panel=option.group,
        autocompletion=values(option.key),
    )
    return inspect.Parameter(
        f"{option.key}_" if reserved else option.key,
        inspect.Parameter.KEYWORD_ONLY,
        default=info,
        annotation=option.takes | None,
    )


def script(shell: Shell) -> str:
    """The lines that make a shell complete what is typed after this command."""
    from typer._completion_shared import get_completion_script

    return get_completion_script(prog_name=Path(COMMAND).name, complete_var=COMPLETE, shell=shell)


def complete(commands: Callable[..., Any]) -> NoReturn:
    """Print what may follow what is typed so far, as the shell's variables say it, and exit."""
    from typer._completion_classes import completion_init

    completion_init()
    for variable, gap in (("COMP_WORDS", "\n"), ("_TYPER_COMPLETE_ARGS", " ")):
        program, _, rest = os.environ.get(variable, "").partition(gap)
        if rest.startswith("-"):  # as on the command line: options alone are those of `run`
            os.environ[variable] = gap.join((program, "run", rest))
            os.environ["COMP_CWORD"] = str(int(os.environ.get("COMP_CWORD", "0")) + 1)
    commands([], prog_name=Path(COMMAND).name, complete_var=COMPLETE, standalone_mode=False)
    raise SystemExit(0)


def values(option: str) -> Callable[[str], list[str]] | None:
    """What completes the values of an option, several with commas; None for one whose values have no names."""
    if option == "netem":
        listed = sorted(path.stem for path in (DATA / "netem_profiles").glob("*.yaml"))
    elif option in _VALUES:
        listed = _VALUES[option].split()
    else:
        return None

    def following(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in listed if name.startswith(begun)]

    return following


def runs(incomplete: str) -> list[str]:
    """The folders of runs whose name, or path, begins so."""
    names = sorted(path.parent.name for path in RESULTS.glob("*/trials.csv"))
    prefix = "results/" if incomplete.startswith("res") else ""
    return [prefix + name for name in names if (prefix + name).startswith(incomplete)]
