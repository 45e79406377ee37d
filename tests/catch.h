#pragma once
// The one place that includes Catch2, so that the version is chosen here alone.

#if __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#endif
