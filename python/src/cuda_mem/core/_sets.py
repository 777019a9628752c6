"""Sets that the driver keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import Any, TypeVar

__all__ = ["DriverSet"]

_T = TypeVar("_T")


class DriverSet(MutableSet[_T]):
    """A view of a set that the driver keeps: each read asks it, and each change is one step. A subclass defines `_read`,
    `_change`, and what a value becomes: `_member`, which raises an exception for what cannot be one, and `_found`, which
    returns None for that."""

    __slots__ = ()

    def _read(self) -> list[_T]:
        raise NotImplementedError

    def _change(self, added: set[_T], removed: set[_T]) -> None:
        raise NotImplementedError

    def _member(self, value: Any) -> _T | None:
        raise NotImplementedError

    def _found(self, value: Any) -> _T | None:
        raise NotImplementedError

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> set[Any]:  # type: ignore[override]
        return set(it)

    def _update(self, added: Iterable[Any] = (), removed: Iterable[Any] = ()) -> None:
        """One step. A value that is added must be allowed; one that is removed may be anything."""
        more = {member for value in added if (member := self._member(value)) is not None}
        less = {member for value in removed if (member := self._found(value)) is not None}
        now = set(self._read())
        more, less = more - now, (less & now) - more
        if more or less:
            self._change(more, less)

    def _assign(self, values: Iterable[Any]) -> None:
        """Makes these the members."""
        wanted = {member for value in values if (member := self._member(value)) is not None}
        self._update(wanted, [member for member in self._read() if member not in wanted])

    def __contains__(self, value: object) -> bool:
        member = self._found(value)
        return member is not None and member in self._read()

    def __iter__(self) -> Iterator[_T]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def add(self, value: Any) -> None:
        """Adds a member."""
        self._update([value])

    def discard(self, value: Any) -> None:
        """Removes a member, if it is one."""
        self._update(removed=[value])

    def update(self, *others: Iterable[Any]) -> None:
        """Adds members."""
        self._update([value for other in others for value in other])

    def difference_update(self, *others: Iterable[Any]) -> None:
        """Removes members."""
        self._update(removed=[value for other in others for value in other])

    def intersection_update(self, *others: Iterable[Any]) -> None:
        """Removes all that are not in each of the others."""
        kept = [{self._found(value) for value in other} for other in others]
        self._update(removed=[member for member in self._read() if not all(member in other for other in kept)])

    def symmetric_difference_update(self, other: Iterable[Any]) -> None:
        """Removes what is in both, and adds what is in the other only."""
        values, now = list(other), set(self._read())
        self._update(
            [value for value in values if self._found(value) not in now],
            [value for value in values if self._found(value) in now],
        )

    def clear(self) -> None:
        """Removes all members."""
        self._update(removed=self._read())

    def __ior__(self, other: Iterable[Any]) -> DriverSet[_T]:  # type: ignore[override, misc]
        self.update(other)
        return self

    def __iand__(self, other: Iterable[Any]) -> DriverSet[_T]:  # type: ignore[override, misc]
        self.intersection_update(other)
        return self

    def __isub__(self, other: Iterable[Any]) -> DriverSet[_T]:  # type: ignore[override, misc]
        self.clear() if other is self else self.difference_update(other)
        return self

    def __ixor__(self, other: Iterable[Any]) -> DriverSet[_T]:  # type: ignore[override, misc]
        self.clear() if other is self else self.symmetric_difference_update(other)
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({set(self._read())!r})"
