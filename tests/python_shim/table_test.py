"""The table of C functions between the package and an adapter: made from what the adapter declares, refused where it is another's."""

import ctypes
import dataclasses
import types
import unittest

import berth
from berth import _build, _library
from berth._errors import SystemFailure
from berth._stats import stats_of


class Table(unittest.TestCase):
    def setUp(self):
        self.called = []
        self.double = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda value: 2 * value)
        self.note = ctypes.CFUNCTYPE(None)(lambda: self.called.append(True))

    def table(self, declarations, version=_build.VERSION, size=None):
        """A table of the two functions, as C lays it out; keeps what it refers to."""

        class Made(ctypes.Structure):
            _fields_ = [
                *_library._Head._fields_,
                ("double", ctypes.c_void_p),
                ("note", ctypes.c_void_p),
            ]

        self.made = Made(
            version.encode(),
            ctypes.sizeof(Made) if size is None else size,
            declarations.encode(),
            ctypes.cast(self.double, ctypes.c_void_p),
            ctypes.cast(self.note, ctypes.c_void_p),
        )
        return _library._table_at(ctypes.addressof(self.made), "libx.so")

    def test_functions_are_called_by_their_names(self):
        table = self.table("int twice(int value);void note(void);")
        self.assertEqual(table.twice(21), 42)
        self.assertIsNone(table.note())
        self.assertEqual(self.called, [True])

    def test_a_table_of_another_berth_is_refused(self):
        with self.assertRaisesRegex(SystemFailure, "libx.so is of berth 0.0.9, this is berth"):
            self.table("int twice(int value);void note(void);", version="0.0.9")

    def test_a_table_that_declares_more_or_less_than_it_has_is_refused(self):
        for declarations in ("int twice(int value);", "int twice(int value);void note(void);void more(void);"):
            with self.assertRaisesRegex(SystemFailure, "libx.so has a table of 40 bytes, and declares"):
                self.table(declarations)

    def test_an_unknown_type_is_refused(self):
        with self.assertRaisesRegex(SystemFailure, "unknown type 'float'"):
            self.table("int twice(float value);void note(void);")

    def test_an_adapter_has_every_function_that_the_package_calls(self):
        names = [name for name, _ in _library.adapter("cpu")._table._fields_]
        self.assertEqual(names[:3], ["version", "size", "declarations"])
        self.assertEqual(len(names), len(set(names)))
        for name in (
            "install",
            "stats",
            "free_values",
            "make_step_program",
            "end_step",
            "allow_spills",
            "watch_threads",
        ):
            self.assertIn(name, names)
        self.assertFalse(berth.installed())

    def test_values_are_numbers_and_texts_in_order_and_are_freed_once(self):
        """An adapter whose table gives two values, and then none for want of memory."""
        values = (_library._Value * 2)((b"hits", None, 2**64 - 1), (b"reason", 'a "\u2026"'.encode(), 0))
        given = [ctypes.pointer(_library._Values(values, len(values))), ctypes.POINTER(_library._Values)()]
        freed = []
        adapter = object.__new__(_library.Adapter)
        adapter._table = types.SimpleNamespace(stats=lambda device: given[device], free_values=freed.append)
        self.assertEqual(adapter.stats(0), [("hits", 2**64 - 1), ("reason", 'a "\u2026"')])
        self.assertEqual(freed, given[:1])
        with self.assertRaises(MemoryError):
            adapter.stats(1)

    def test_counters_are_followed_by_those_of_each_miss(self):
        """Before berth is installed the adapter's are all zero. Its order is another than that of Stats."""
        values = _library.adapter("cpu").stats(0)
        names = [field.name for field in dataclasses.fields(berth.Stats)]
        self.assertEqual(sorted(name for name, _ in values), sorted(names))
        none = stats_of(values)
        self.assertEqual(none, berth.Stats(**dict.fromkeys(names, 0) | {"misses": (), "device_memory": ""}))
        misses = [berth.Miss("size", 1, 0, 7, 9, 512, 2**64 - 1, 3, 4), berth.Miss("lost", 2, 1, 0, 9, 0, 8, 0, 1)]
        follow = [pair for miss in misses for pair in dataclasses.asdict(miss).items()]
        self.assertEqual(stats_of(values + follow), dataclasses.replace(none, misses=tuple(misses)))


if __name__ == "__main__":
    unittest.main(argv=["table_test.py", "-q"])
