/* The header is C, and a C program can use it. */
#include <berth/berth.h>

#include <string.h>

int berth_use_from_c(void);

int berth_use_from_c(void) {
  berth_statistics statistics;
  void* block = berth_malloc(1000, BERTH_HOST, NULL);
  if (block == NULL) return 1;
  memset(block, 1, 1000);
  berth_free(block, 1000, BERTH_HOST, NULL);
  statistics.size = sizeof(statistics);
  if (berth_get_statistics(BERTH_HOST, &statistics) != BERTH_OK) return 2;
  return statistics.live_bytes == 0 && statistics.frees > 0 ? 0 : 3;
}
