// A file for the precompiled headers of all tests (CMakeLists.txt).
