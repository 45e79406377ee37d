# Takes the folders in which a program looks for its libraries out of it: cmake -DFILE=... -P RemoveRunPath.cmake
file(RPATH_REMOVE FILE "${FILE}")
