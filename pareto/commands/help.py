"""The frame of the command line: its groups of commands, how `--help` looks, and what a shell completes."""

from __future__ import annotations

import inspect
import keyword
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from pareto import COMMAND, DATA, RESULTS
from pareto.analysis.fronts import objectives
from pareto.protocol.errors import UserError
from pareto.sweep.options import ALL, GROUPS, OPTIONS
from pareto.sweep.options import RESULTS as OF_RESULTS

Function = TypeVar("Function", bound=Callable[..., None])
MEASURE, CONCLUDE = "Measure", "Conclude from runs"
FORESEE, OF_HOSTS = "Before a run", "Hosts, and this program"
_HEADS = ("Arguments", *GROUPS, "Options", MEASURE, CONCLUDE, FORESEE, OF_HOSTS)
"""In `--help`, in this order; those of one command follow."""
_VALUES = {
    "model": "mobilenetv2 resnet18 resnet50 alexnet vgg16 inceptionv3 squeezenet1_1",
    "netem": " ".join(sorted(path.stem for path in (DATA / "netem_profiles").glob("*.yaml"))),
    "backend": "tcp tcp:4 rpc rpc:basic",
    "secure": "none tls",
    "codec": "none fp16 int8 uint4 zstd lz4 blosc2 int8+lz4",
    "codec_back": "none zstd lz4 blosc2",
    "engine": "eager compile onnx",
    "allocator": "tuned default",
    "granularity": "block op",
    "weights": "seeded pretrained",
    "testbed": "local simulated",
    "shape_at": "both edge",
}


class Command(TyperCommand):
    """A command whose options stand under their heads in `--help`, the usual ones or all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments that are left. Refuses an option that stands there twice, of which one would not count."""
        if "--help-all" in args:
            ctx.meta[ALL], args = True, ["--help"]
        for each, times in Counter(self.make_parser(ctx).parse_args(args=[*args])[2]).items():
            if times > 1 and each.param_type_name == "option" and not (each.multiple or each.is_eager):
                option = OPTIONS.get(each.name.rstrip("_"))
                commas = ", and several values with commas" if option and option.takes_several else ""
                raise UserError(f"{each.opts[0]} stands there {times} times: give it once{commas}")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The pieces of the usage line, without braces around what must be given."""
        return [re.sub("[{}]", "", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        every = [(each, OPTIONS.get(each.name.rstrip("_"))) for each in self.get_params(ctx)]
        left_out = [each for each, known in every if known and known.level == ALL and not ctx.meta.get(ALL)]
        shown = [each for each, _ in every if each not in left_out]
        rows: list[Any] = [(each, *record) for each in shown if (record := each.get_help_record(ctx))]
        if left_out:
            rows.append((None, "--help-all", f"Show the other options, too: {len(left_out)} more."))
        _write(rows, "Options", formatter)


class Group(TyperGroup):
    """Commands under their heads, each with its whole sentence; options without a command are those of a sweep."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        if "run" in self.commands and args and args[0].startswith("-") and args[0] not in own:
            args = ["run", *args]
        rest = super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])
        ctx.find_root().info_name = COMMAND  # a shell completes by another name
        return rest

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        ctx.find_root().info_name = COMMAND
        super().format_usage(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        found = super().shell_complete(ctx, incomplete)
        if "run" in self.commands and incomplete.startswith("-"):
            run = self.commands["run"]
            found += run.shell_complete(run.make_context("run", [], ctx, resilient_parsing=True), incomplete)
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(each, name, " ".join((each.help or "").split())) for name, each in self.commands.items()]
        _write(rows, "Commands", formatter)


def _write(rows: Sequence[tuple[Any, str, str]], usual: str, formatter: Any) -> None:
    """Write what has a name and words under its head, or the usual one."""
    heads = [getattr(what, "rich_help_panel", None) or usual for what, *_ in rows]
    for head in dict.fromkeys((*_HEADS, *heads)):
        named = zip(heads, rows, strict=True)
        if under := [(name.partition(" <")[0], words) for of, (_, name, words) in named if of == head]:
            with formatter.section(head):
                formatter.write_dl(under)


def _examples(lines: Iterable[str]) -> str:
    return "\n".join(("\b", "Examples:", *(f"  {COMMAND} {line}" for line in lines)))


app = typer.Typer(
    cls=Group,
    context_settings={"help_option_names": ["--help", "-h"]},
    options_metavar="--model MODEL [--netem NETWORK] [OPTIONS]",
    subcommand_metavar="| COMMAND ...",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Where should a DNN be split between an edge device and a server? Runs every partition point over raw "
    "sockets and PyTorch RPC under an emulated network, and computes the latency/throughput Pareto front.",
    epilog=_examples(
        (
            "--model mobilenetv2 --netem 200ms-5mbit",
            "report results/example",
            "advise results/example --latency 20ms --rate 30mbit",
        )
    ),
)


def group(name: str, help_: str, head: str) -> typer.Typer:
    """A command that has commands."""
    made = typer.Typer(cls=Group, help=help_)
    app.add_typer(made, name=name, rich_help_panel=head, options_metavar="[OPTIONS]")
    return made


def command(of: str | typer.Typer, *examples: str, name: str | None = None) -> Callable[[Function], Function]:
    """A decorator: the function is a command of a group, or stands under a head; with these examples."""
    to, head = (app, of) if isinstance(of, str) else (of, None)
    lines = _examples(examples)
    return to.command(name, cls=Command, rich_help_panel=head, epilog=lines, options_metavar="[OPTIONS]")


def argument(kind: str, words: str, default: Any = ..., complete: Any = None) -> Any:
    """An argument. kind: what stands for it. complete: what completes it."""
    more: dict[str, Any] = {"show_default": False, "rich_help_panel": "Arguments"}
    return typer.Argument(default, metavar=kind, help=words, autocompletion=complete, **more)


def option(
    default: Any, words: str, *names: str, kind: str | None = "NAME", head: str = "", **more: Any
) -> Any:
    """An option of a command's own. words: with the default in brackets, where it is another for a reader."""
    if default not in (None, "", False, ...) and words[-1] != "]":
        words += f"  [{default}]"
    more |= {"rich_help_panel": head or None, "show_default": False}
    return typer.Option(default, *names, help=words, metavar=None if default is False else kind, **more)


def out(words: str, default: Path | None = RESULTS, head: str = "") -> Any:
    """The option `--out`. words: as of `option`."""
    return option(default, words, "--out", "-o", kind="FOLDER", head=head)


def takes(*names: str, head: str = "") -> Callable[[Function], Function]:
    """A decorator: the command has these options of a sweep too, of which `typed` finds those that the user types."""

    def declare(command: Function) -> Function:
        own = inspect.signature(command, eval_str=True)
        kept = [each for each in own.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        for each in (OPTIONS[name] for name in names):
            more: dict[str, Any] = {"head": head or each.group, "autocompletion": _following(each.key)}
            info = option(None, each.described, *each.names, kind=each.placeholder, **more)
            name = f"{each.key}_" if keyword.iskeyword(each.key) else each.key
            only = inspect.Parameter.KEYWORD_ONLY
            kept.append(inspect.Parameter(name, only, default=info, annotation=each.takes | None))
        command.__signature__ = own.replace(parameters=kept)  # type: ignore[attr-defined]
        return command

    return declare


def typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a sweep that were typed, by their names."""
    return {name.rstrip("_"): value for name, value in options.items() if value is not None}


def given(context: typer.Context) -> set[str]:
    """The names of all options that were typed, as `--out`."""
    return {
        each.opts[0]
        for each in context.command.params
        if each.opts[0][0] == "-" and "COMMANDLINE" in str(context.get_parameter_source(each.name or ""))
    }


def refuse(names: set[str], why: str) -> None:
    """Raise UserError if there are such options."""
    if names:
        raise UserError(f"{', '.join(sorted(names))}: {why}")


def _following(option: str) -> Callable[[str], list[str]] | None:
    """A function that completes an option's values, several with commas; None where these have no names."""

    def following(incomplete: str) -> list[str]:
        before, comma, begun = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in _VALUES[option].split() if name.startswith(begun)]

    return following if option in _VALUES else None


def runs(incomplete: str) -> list[str]:
    """The folders of runs whose name, or path, begins so."""
    names = sorted(path.parent.name for path in RESULTS.glob("*/trials.csv"))
    prefix = "results/" if incomplete.startswith("res") else ""
    return [prefix + name for name in names if (prefix + name).startswith(incomplete)]


DEFAULT_OBJECTIVES = ",".join(objectives.DEFAULT)
NAMED = f"Objectives, with commas: {', '.join(objectives.OBJECTIVES)}."
OBJECTIVES = option(DEFAULT_OBJECTIVES, NAMED, kind="NAME,...")
WHERE = option("", 'Only points that satisfy this: "latency_s < 0.5 and edge_s < 50ms".', kind="CONDITION")
Which = Literal["auto", "all", "none"]
WHICH = "Which figures: the usual kinds (auto; not of single conditions if these are many), all, or none."
FIGURES = option("auto", WHICH, kind="auto|all|none", head=OF_RESULTS)
JSON = option(False, "Print one JSON object instead of words and tables (docs/json.md).", "--json")
