#pragma once

// Planning a step within a budget is public; here is what its parts share.
#include "csrc/schedule/joint/working_set.h"

#include <berth/schedule.h>
