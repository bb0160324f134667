#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
static jmp_buf outer, inner;
static int depth;
__attribute__((noinline)) void down(int n, int code) { if (n == 0) longjmp(code & 1 ? inner : outer, code); depth++; down(n - 1, code); depth += 1000; }
typedef void (*fn)(int, int);
volatile fn table[2] = { down, down };
int main(int argc, char **argv) {
  volatile int kept = 1;
  switch (setjmp(outer)) {
  case 0: break;
  case 2: printf("outer got 2, kept %d depth %d\n", kept, depth); break;
  case 4: printf("outer got 4, kept %d depth %d\n", kept, depth); return 0;
  }
  kept++;
  for (int i = 0; i < 4; i++) {
    int c = setjmp(inner);
    if (c == 0) table[i & 1](10 * i, i < 2 ? 3 : i == 2 && kept < 6 ? 2 : 4);
    kept++;
    printf("inner %d: %d, kept %d depth %d\n", i, c, kept, depth);
  }
  return 1;
}
