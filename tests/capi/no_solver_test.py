#!/usr/bin/env python3
"""libberth.so holds no integer program and asks for no solver, as the program berth does. Usage: no_solver_test.py LIBRARY PROGRAM"""

import pathlib
import sys

# What csrc/place/oracle says where its solver is missing, with HiGHS or without.
MARK = b"integer programs need the library HiGHS"

library, program = (pathlib.Path(name).read_bytes() for name in sys.argv[1:3])
if MARK in library:
    sys.exit(f"{sys.argv[1]} holds the integer program of csrc/place/oracle")
if MARK not in program:
    sys.exit(f"{sys.argv[2]} does not hold the integer program: does this test look for the right words?")
