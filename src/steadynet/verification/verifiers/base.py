"""The base class of all verifiers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from steadynet.errors import UserError
from steadynet.plugins import describe_value, setting, settings_of
from steadynet.verification.properties import Properties, Result

MAY_BE_ZERO = ("restarts", "attack_steps")  # zero means that there is no attack

OnResult = Callable[[int, Result], None]  # called with the index of a property and its result


@dataclass(frozen=True, kw_only=True)
class Verifier(ABC):
    """A method that decides properties.

    A subclass is one file in ``steadynet/verification/verifiers``. It has a ``name``, a one-line ``summary``, its
    settings as fields, and :meth:`verify`. Calling a verifier decides all properties and returns their results.

    Args:
        timeout: Seconds that one property may take.

    Raises:
        UserError: A setting has a value that makes no sense.

    Example:
        >>> import torch
        >>> from steadynet.verification.verifiers import make_verifier
        >>> verifier = make_verifier("branch_and_bound", {"timeout": 5.0})
        >>> network = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False))
        >>> _ = network[0].weight.data.copy_(torch.tensor([[1.0], [0.0]]))  # label 0 for every positive input
        >>> (result,) = verifier(Properties.around(network, torch.tensor([[0.5]]), torch.tensor([0]), eps=0.1))
        >>> result.verdict.value
        'unsat'
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    timeout: float = setting(60.0, "seconds a property may take")

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise UserError(f"timeout = {self.timeout:g} must be larger than 0")
        for entry in settings_of(type(self)):
            value, least = getattr(self, entry.name), 0 if entry.name in MAY_BE_ZERO else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise UserError(f"{entry.name} = {value} must be {least} or more")

    @abstractmethod
    def verify(self, properties: Properties, on_result: OnResult) -> None:
        """Decide every property.

        Args:
            properties: The properties, in any number.
            on_result: Called once per property, as soon as it is decided and in any order, with the property's index
                and its result.
        """

    def __call__(self, properties: Properties, on_result: OnResult = lambda index, result: None) -> list[Result]:
        """Decide every property and return the results in the order of the properties.

        Args:
            properties: The properties.
            on_result: Called once per property as soon as it is decided, as in :meth:`verify`.
        """
        found: dict[int, Result] = {}

        def record(index: int, result: Result) -> None:
            found[index] = result
            on_result(index, result)

        self.verify(properties, record)
        return [found[index].stated() for index in range(len(properties))]

    def described_settings(self) -> dict[str, str]:
        """Return the value of each setting as a user reads it."""
        return {entry.name: describe_value(getattr(self, entry.name)) for entry in settings_of(type(self))}

    def settings_line(self) -> str:
        """Return the settings, except for the time-out, in one line: the column ``settings`` of ``verdicts.csv``.

        A stored verdict is used again only where this line is the same.
        """
        return " ".join(f"{name}={value}" for name, value in self.described_settings().items() if name != "timeout")
