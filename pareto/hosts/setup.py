"""`hosts setup`: everything that the hosts of a testbed file need, put there once; doing it again takes a second."""

from __future__ import annotations

import io
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pareto.errors import UserError
from pareto.hosts import packages, privileged, shipping
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import Member
from pareto.hosts.packages import REQUIREMENTS, Say
from pareto.hosts.way import Outcome, Unreachable, Way

_INSTALL_S = 300.0
"""How long a slow host may take to unpack and compile the program that shapes the link."""
_Result = TypeVar("_Result")


@dataclass
class Site:
    """A host that was reached. ready: nothing is missing so far; changed: something was put there."""

    member: Member
    way: Way
    say: Say
    folder: str
    user: str
    is_root: bool
    ready: bool = True
    changed: bool = False

    def fail(self, words: str) -> None:
        self.ready = False
        self.say(words)


def set_up(
    members: Sequence[Member],
    open_way: Callable[[Member], Way],
    *,
    say: Say,
    ask: Callable[[str], str] | None,
    requirements: Path = REQUIREMENTS,
) -> bool:
    """Set the hosts up side by side, each line said beginning with its host's name; whether all of it is done.

    `ask` gets the user's password for sudo there, given a prompt; None where there is no terminal. Passwords come
    first, so that nobody has to wait for the question.
    """
    saying = threading.Lock()

    def say_of(member: Member, words: str) -> None:
        with saying:
            say(f"{member.name}: {words}")

    reached = side_by_side([partial(_reach, member, open_way, partial(say_of, member)) for member in members])
    sites = [site for site in reached if site is not None]
    try:
        for site in sites:
            _contained(site, partial(_provide_helper, site, ask))
        side_by_side(
            [partial(_contained, site, partial(_provide_packages, site, requirements)) for site in sites]
        )
    finally:
        for site in sites:
            site.way.close()
    for site in sites:
        done = "set up" if site.changed else "set up already"
        site.say(done if site.ready else "not set up: see above")
    return len(sites) == len(members) and all(site.ready for site in sites)


def is_set_up(site: Site, requirements: Path = REQUIREMENTS) -> bool:
    """Whether `set_up` would find nothing to do there. Raises Unreachable."""
    return helper_is_current(site) and packages.are_there(site.way, site.member, site.folder, requirements)


def look(member: Member, way: Way, say: Say) -> Site:
    """Who is logged in there. Raises Unreachable."""
    folder = shipping.absolute(way, member.folder)
    number, _, user = way.run("id -u; id -un").out.strip().partition("\n")
    return Site(member, way, say, folder, user, is_root=number == "0")


def helper_is_current(site: Site) -> bool:
    """Whether the program that shapes the link can be started there, the version that is here. Raises Unreachable."""
    return site.is_root or _helper_said(site).out.strip() == privileged.digest()


def side_by_side(
    tasks: Sequence[Callable[[], _Result]], within_s: float | None = None
) -> list[_Result | None]:
    """What each task returns, in order; None of one that was not done in time. Raises what one of them raises.

    The threads hold up neither Ctrl-C nor the program's end.
    """
    results: list[_Result | None] = [None] * len(tasks)
    faults: list[BaseException] = []
    done = threading.Semaphore(0)

    def work(number: int, task: Callable[[], _Result]) -> None:
        try:
            results[number] = task()
        except BaseException as error:
            faults.append(error)
        done.release()

    for number, task in enumerate(tasks):
        threading.Thread(target=work, args=(number, task), daemon=True).start()
    until = None if within_s is None else time.monotonic() + within_s
    for _ in tasks:
        if not done.acquire(timeout=None if until is None else max(0.0, until - time.monotonic())):
            break
    if faults:
        raise faults[0]
    return list(results)


def _reach(member: Member, open_way: Callable[[Member], Way], say: Say) -> Site | None:
    try:
        way = open_way(member)
        try:
            return look(member, way, say)
        except BaseException:
            way.close()
            raise
    except (Unreachable, TestbedError) as error:
        say(f"not reached: {error}")
        return None


def _contained(site: Site, step: Callable[[], None]) -> None:
    """A step that fails is said, and the others go on."""
    try:
        step()
    except (UserError, TestbedError, Unreachable) as error:
        site.fail(str(error))


def _provide_packages(site: Site, requirements: Path) -> None:
    if packages.provide(site.way, site.member, site.folder, site.say, requirements):
        site.changed = True


def _provide_helper(site: Site, ask: Callable[[str], str] | None) -> None:
    """The program that shapes the link. Raises TestbedError, Unreachable."""
    if helper_is_current(site):
        return
    if site.way.run("command -v sudo").status != 0:
        raise TestbedError(
            "there is no sudo, by which the link is shaped: install it there (apt-get install sudo)"
        )
    script = privileged.install_script(site.user)
    name = f"pareto-link-{privileged.digest()}.tar"
    archive = shipping.ship(site.way, site.folder, privileged.archive(), name)
    install = shlex.join(["/bin/sh", "-c", script, "sh", archive])
    if site.way.run("sudo -n true").status == 0:
        outcome = site.way.run(f"LC_ALL=C sudo -n {install}", timeout_s=_INSTALL_S)
    elif ask is not None:
        password = ask(f"{site.member.name}: password of {site.user} for sudo there, once: ")
        if not password:
            raise TestbedError("the program that shapes the link is not installed: no password was given")
        # -k: it reads the password from us in any case, so that nothing else can.
        command = f"LC_ALL=C sudo -k -S -p '' {install}"
        outcome = site.way.run(command, io.BytesIO(f"{password}\n".encode()), timeout_s=_INSTALL_S)
    else:
        by_hand = f"install-{privileged.digest()}-{site.user}.sh"
        path = shipping.ship(site.way, site.folder, script.encode(), by_hand)
        site.fail(
            "the program that shapes the link must be installed by root, and sudo asks for a password: "
            f"run there: sudo sh {shlex.quote(path)} {shlex.quote(archive)}"
        )
        return
    if outcome.status != 0:
        raise TestbedError(f"the program that shapes the link is not installed: {outcome.words}")
    site.way.run(f"rm -f {shlex.quote(archive)}")
    if not helper_is_current(site):
        raise TestbedError(
            f"{privileged.SUDOERS} has no effect ({_helper_said(site).words}): "
            "/etc/sudoers must end with @includedir /etc/sudoers.d, and no later line may ask for a password"
        )
    site.say("installed the program that shapes the link")
    site.changed = True


def _helper_said(site: Site) -> Outcome:
    return site.way.run(f"LC_ALL=C {privileged.COMMAND} --digest")
