
#include <string.h>
#define SIZE (32 * 64 * 4)
static void *keys[512]; static char values[512][SIZE]; static int count;
int recall(void *key, void *out) {
    for (int i = 0; i < count; i++)
        if (keys[i] == key) { memcpy(out, values[i], SIZE); return 1; }
    return 0;
}
void keep(void *key, void *value) {
    if (count < 512) { keys[count] = key; memcpy(values[count++], value, SIZE); }
}
