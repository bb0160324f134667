/* Reads texts from stdin, each after its length in 4 bytes, little endian. Answers each in the same form with
 * what the header has read of it as JSON, or with nothing if it is invalid. c_test.go says what is written. */
#include <stdlib.h>

/* What is allocated for a text is freed after it. */
static void *allocated[1 << 16];
static size_t allocations;

static void *keep(size_t n, size_t size) {
	if (allocations == sizeof allocated / sizeof *allocated) abort();
	return allocated[allocations++] = calloc(n, size);
}
#define calloc keep
#include "../toolhost.h"

struct th__plugin th__plugin;

int th_read(int field, void *p, size_t cap) { (void)field, (void)p, (void)cap; return -1; }
int th_write(int stream, const void *p, size_t n) { (void)stream; return fwrite(p, 1, n, stderr) == n ? 0 : -1; }
int th__progress(double done, double total, const char *message, size_t n) { (void)done, (void)total, (void)message, (void)n; return 0; }
int th__call(const char *op, size_t op_n, const char *request, size_t n) { (void)op, (void)op_n, (void)request, (void)n; return -2; }
int th__call_start(const char *op, size_t op_n, const char *request, size_t n) { return th__call(op, op_n, request, n); }

static void rewrite(th_json *j, th_value v, int depth) {
	th_str s;
	switch (depth < 15 ? th_type_of(v) : TH_NULL) {
	case TH_MISSING: th_panic("a valid value is missing");
	case TH_NULL: th_put_null(j, NULL); break;
	case TH_BOOL: th_put_bool(j, NULL, th_bool(v, false)); break;
	case TH_STRING: th_put_str(j, NULL, th_string(v, NULL)); break;
	case TH_NUMBER:
		th_put_array(j, NULL);
		th_put_number(j, NULL, th_number(v, 0));
		if (th_int(v, 0) || !th_int(v, 1)) th_put_int(j, NULL, th_int(v, 0));
		else th_put_null(j, NULL);
		th_end(j);
		break;
	case TH_ARRAY:
	case TH_OBJECT:
		th_put_array(j, NULL);
		for (th_iter i = th_each(v); th_next(&i);) {
			if (th_type_of(v) == TH_OBJECT) {
				s = th_string(i.key, NULL);
				if (strlen(s.p) == s.n && (!th_is(i.key, s.p) || !th_get(v, s.p).json)) th_panic("a key is not found");
				th_put_str(j, NULL, s);
			}
			rewrite(j, i.value, depth + 1);
		}
		th_end(j);
	}
}

int main(void) {
	uint32_t n;
	while (fread(&n, sizeof n, 1, stdin) == 1) {
		char *text = malloc(n); /* exactly, so that a read beyond the end is found */
		if (fread(text, 1, n, stdin) != n) return 1;
		th_json j = {0};
		th_value v = th_parse(text, n);
		if (v.json) rewrite(&j, v, 0);

		uint32_t len = (uint32_t)j.n;
		fwrite(&len, sizeof len, 1, stdout);
		if (j.n) fwrite(j.p, 1, j.n, stdout);
		fflush(stdout);
		free(text);
		while (allocations) free(allocated[--allocations]);
	}
	return 0;
}
