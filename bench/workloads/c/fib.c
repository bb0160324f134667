__attribute__((export_name("run"))) int run(int n);
static __attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int run(int n) { return fib(n); }
