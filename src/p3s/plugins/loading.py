"""Algorithms, schemes and networks from outside the package.

    @register                   a class of your own, known once its module is imported
    entry points                of an installed package: p3s.algorithms, p3s.schemes, p3s.networks
    "package.module:Name"       wherever a name is asked for: the module is imported

A module that a user names is imported; the current folder is searched too. A run's config.json
names the modules that it needs, and `resume` imports them if this user wrote it (runs/trust.py). A
policy file is for sharing and never imports anything:
what it needs has to be known already, by an import or an entry point.
"""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Iterable, MutableMapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from p3s.algorithms import ALGORITHMS
from p3s.errors import UserError, unknown
from p3s.registry import search_current_folder
from p3s.schemes import SCHEMES

if TYPE_CHECKING:
    from p3s.networks import Network

Registered = TypeVar("Registered", bound=type)


def register(made: Registered) -> Registered:
    """Make an algorithm, a scheme or a network known by its `name`; for use as a decorator."""
    from p3s.algorithms.base import Algorithm
    from p3s.algorithms.off_policy import OffPolicy
    from p3s.algorithms.on_policy import OnPolicy

    bases = made.__mro__ if isinstance(made, type) else ()
    if not any(base in bases for base in _registries()):
        raise UserError(f"{made!r} is not an algorithm, scheme or network: derive it from one")
    if Algorithm in bases and OffPolicy not in bases and OnPolicy not in bases:
        raise UserError(
            f"{made.__name__} must be derived from OffPolicy, which has the fields "
            "that schemes ask for"
        )
    own = vars(made)
    if "__dataclass_fields__" not in own or not isinstance(own.get("name"), str):
        raise UserError(f"{made.__name__} must be a frozen dataclass with a name: ClassVar[str]")
    registry, name = _registry(made), own["name"]
    before = registry.get(name, made)
    if _origin(before) != _origin(made):
        raise UserError(f"the name {name!r} is taken by {'.'.join(_origin(before))}")
    registry[name] = made
    return made


def _registries() -> dict[type, MutableMapping[str, Any]]:
    """What can be registered, and where."""
    from p3s.algorithms.base import Algorithm
    from p3s.networks import NETWORKS, Network
    from p3s.schemes.base import Scheme

    return {Algorithm: ALGORITHMS, Scheme: SCHEMES, Network: NETWORKS}


def _registry(made: type) -> MutableMapping[str, Any]:
    return next(found for base, found in _registries().items() if issubclass(made, base))


def _origin(made: type) -> tuple[str, str]:
    return made.__module__, made.__qualname__


def import_module(module: str) -> Any:
    """Import a module, and make known what algorithms, schemes and networks it defines.

    The current folder is searched as well.
    """
    search_current_folder()
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"the module {module!r} cannot be imported: {what}") from error
    for made in vars(imported).values():
        if isinstance(made, type) and made.__module__ == module and _can_be_registered(made):
            register(made)
    return imported


def _can_be_registered(made: type) -> bool:
    known = issubclass(made, tuple(_registries()))
    return known and "__dataclass_fields__" in vars(made) and "name" in vars(made)


def load_entry_points() -> None:
    """Make known what installed packages offer; one that fails is reported and left out."""
    for group in ("p3s.algorithms", "p3s.schemes", "p3s.networks"):
        for entry in entry_points(group=group):
            try:
                register(entry.load())
            except Exception as error:
                warnings.warn(f"{group}: {entry.value} cannot be loaded: {error}", stacklevel=2)


def check_known(registry: MutableMapping[str, Any], kind: str, name: str) -> None:
    """Raise UserError if nothing has this name, in installed packages either."""
    if name not in registry:
        load_entry_points()
    if name not in registry:
        raise unknown(kind, name, registry, kind)


def find(registry: MutableMapping[str, Any], kind: str, name: str) -> Any:
    """The class that a user names: a known name, or 'module:Name'."""
    if ":" not in name:
        check_known(registry, kind, name)
        return registry[name]
    module, _, attribute = name.partition(":")
    made = getattr(import_module(module), attribute, None)
    if made is None:
        raise UserError(f"the module {module!r} has no {attribute!r}", kind)
    if not isinstance(made, type) or _registry(register(made)) is not registry:
        raise UserError(f"{name} cannot be used as {kind}", kind)
    return made


def find_network(name: str) -> type[Network]:
    """A network by its name, from installed packages too."""
    from p3s.networks import NETWORKS, network_named

    if name not in NETWORKS:
        load_entry_points()
    return network_named(name)


def recorded(registry: MutableMapping[str, Any], kind: str, name: str) -> Any:
    """The class that a file names; nothing is imported but entry points."""
    if name not in registry:
        load_entry_points()
    if name not in registry:
        raise UserError(f"{kind} {name!r} is not known: import the module that registers it")
    return registry[name]


def modules_of(parts: Iterable[Any]) -> list[str]:
    """The modules outside the package that define these algorithms and schemes."""
    from p3s.networks import NETWORKS

    found = set()
    for made in parts:
        found.add(type(made).__module__)
        names = {field.name for field in dataclasses.fields(made)}
        if "network" in names and made.network in NETWORKS:
            found.add(NETWORKS[made.network].__module__)
    return sorted(name for name in found if name.split(".")[0] not in ("p3s", "__main__"))
