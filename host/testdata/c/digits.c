// A small tool in C without any library: it adds up the digits in its
// arguments. What it keeps from call to call, a count and a seed it had set at
// its start, would show if a call saw what an earlier one left behind.
#define IMPORT(name) __attribute__((import_module("toolhost_v1"), import_name(name)))
#define EXPORT(name) __attribute__((export_name(name)))

IMPORT("read") int field(int field, void *to, unsigned cap);
IMPORT("write") int put(int stream, const void *from, unsigned len);

enum { ARGS = 0, RESULT = 0, ERROR = 1, TOOL_ERROR = 1 };

static char args[4096];
static int calls;
static int seed;

EXPORT("_initialize") void initialize(void) { seed = 1; }

static unsigned text(char *to, const char *s) {
	unsigned n = 0;
	for (; s[n]; n++)
		to[n] = s[n];
	return n;
}

static unsigned number(char *to, unsigned v) {
	char digits[10];
	unsigned n = 0, i = 0;
	do
		digits[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n)
		to[i++] = digits[--n];
	return i;
}

EXPORT("toolhost_invoke") int invoke(void) {
	static const char long_args[] = "the arguments are too long";
	char answer[64];
	unsigned sum = 0, n = 0;
	int len = field(ARGS, args, sizeof args);
	if (len < 0 || len > (int)sizeof args) {
		put(ERROR, long_args, sizeof long_args - 1);
		return TOOL_ERROR;
	}
	for (int i = 0; i < len; i++)
		if (args[i] >= '0' && args[i] <= '9')
			sum += (unsigned)(args[i] - '0');
	calls += seed;
	n += text(answer + n, "{\"sum\":");
	n += number(answer + n, sum);
	n += text(answer + n, ",\"calls\":");
	n += number(answer + n, (unsigned)calls);
	n += text(answer + n, "}");
	put(RESULT, answer, n);
	return 0;
}
