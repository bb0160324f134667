// The shim between QuickJS (quickjs.wasm of npm's quickjs-wasi, which build.sh merges it
// with) and toolhost_v1. It has no static data, so nothing of it has to find a place in
// QuickJS's memory. All it keeps is the function that the prelude evaluates to, as the
// opaque pointer of the context.

#define FROM(mod, name) __attribute__((import_module(mod), import_name(name)))
#define Q(ret, name, ...) FROM("quickjs", #name) ret name(__VA_ARGS__)
#define EXPORT(name) __attribute__((export_name(name)))

typedef struct value value; // a JSValue on QuickJS's heap

Q(int, qjs_init, void);
Q(value *, qjs_eval, const char *code, int len, const char *file, int flags);
Q(value *, qjs_eval_bytecode, const char *p, int len);
Q(value *, qjs_call, value *f, value *self, int argc, value **argv);
Q(value *, qjs_new_host_function, const char *name, int len, int flags);
Q(value *, qjs_new_string, const char *p, int len);
Q(value *, qjs_new_number, double d);
Q(value *, qjs_get_undefined, void);
Q(value *, qjs_get_null, void);
Q(const char *, qjs_get_string_len, value *v, int *len);
Q(void, qjs_free_cstring, const char *s);
Q(double, qjs_get_float64, value *v);
Q(void, qjs_free_value, value *v);
Q(int, qjs_is_exception, value *v);
Q(int, qjs_execute_pending_job, void);
Q(int, qjs_is_job_pending, void);
Q(value *, qjs_get_exception, void);
Q(void *, qjs_get_context_ptr, void);
Q(void, qjs_set_max_stack_size, int n);
Q(void, qjs_set_memory_limit, int n);
Q(void, qjs_set_promise_rejection_handler, int on);
Q(void *, wasm_malloc, int n);
Q(void, wasm_free, void *p);
Q(void, JS_SetContextOpaque, void *ctx, void *p);
Q(void *, JS_GetContextOpaque, void *ctx);
FROM("quickjs", "_initialize") void quickjs_initialize(void);

FROM("wasi_snapshot_preview1", "clock_time_get") int wasi_clock(int id, long long precision, long long *at);

FROM("toolhost_v1", "read") int host_read(int field, void *p, int cap);
FROM("toolhost_v1", "write") int host_write(int stream, const void *p, int n);
FROM("toolhost_v1", "progress") int host_progress(double done, double total, const void *p, int n);
FROM("toolhost_v1", "call") int host_call(const void *op, int op_len, const void *p, int n);
FROM("toolhost_v1", "call_start") int host_start(const void *op, int op_len, const void *p, int n);

enum { // what step is called for
	START,     // the call begins
	ENDED,     // an operation has ended
	STATE,     // all jobs are done: how do things stand?
	REJECTED,  // a promise was rejected, and nothing waits for it
	HANDLED,   // something waits for it now
	BROKEN,    // it threw: what is to be said of that?
};

enum { SCRIPT = 4, LENGTH = 8, MEMORY = 48 << 20, STACK = 512 << 10 };

// number is the length in front of the prelude.
static int number(const char *digits) {
	int n = 0;
	for (int i = 0; i < LENGTH; i++) n = n * 10 + digits[i] - '0';
	return n;
}

// text is a field of the call, or null.
static value *text(int field) {
	int n = host_read(field, 0, 0);
	if (n < 0) return qjs_get_null();
	char *p = wasm_malloc(n + 1);
	if (!p) __builtin_trap();
	host_read(field, p, n);
	p[n] = 0;
	value *v = qjs_new_string(p, n);
	wasm_free(p);
	return v;
}

// load runs the bytecode that the section has behind the prelude, and is its value.
static value *load(void) {
	int n = host_read(SCRIPT, 0, 0);
	char *p = wasm_malloc(n);
	if (!p) return qjs_get_null();
	host_read(SCRIPT, p, n);
	int from = LENGTH + number(p);
	value *v = qjs_eval_bytecode(p + from, n - from);
	wasm_free(p);
	return v;
}

// The functions that the prelude gets: read, write, start, call, progress and load, by
// their first letters.
EXPORT("host_call") value *env_call(const char *name, int name_len, value *self, int argc, value **argv) {
	int n, m, answer;
	const char *s, *t;
	switch (name[0]) {
	case 'r':
		return text((int)qjs_get_float64(argv[0]));
	case 'l':
		return load();
	case 'w':
		s = qjs_get_string_len(argv[1], &n);
		answer = s ? host_write((int)qjs_get_float64(argv[0]), s, n) : -1;
		if (s) qjs_free_cstring(s);
		return qjs_new_number(answer);
	case 's':
	case 'c':
		s = qjs_get_string_len(argv[0], &n);
		t = qjs_get_string_len(argv[1], &m);
		if (!s || !t) __builtin_trap();
		answer = name[0] == 's' ? host_start(s, n, t, m) : host_call(s, n, t, m);
		qjs_free_cstring(s);
		qjs_free_cstring(t);
		return qjs_new_number(answer);
	case 'p':
		s = qjs_get_string_len(argv[2], &n);
		if (!s) __builtin_trap();
		answer = host_progress(qjs_get_float64(argv[0]), qjs_get_float64(argv[1]), s, n);
		qjs_free_cstring(s);
		return qjs_new_number(answer);
	}
	__builtin_trap();
}

// call calls step, whose answer is a number. It is below 0 if step throws.
static int call(int what, value *a, value *b) {
	value *f = JS_GetContextOpaque(qjs_get_context_ptr());
	value *self = qjs_get_undefined();
	value *argv[3] = {qjs_new_number(what), a, b};
	value *v = qjs_call(f, self, 3, argv);
	qjs_free_value(argv[0]);
	qjs_free_value(self);
	int answer = -1;
	if (qjs_is_exception(v))
		qjs_free_value(qjs_get_exception());
	else
		answer = (int)qjs_get_float64(v);
	qjs_free_value(v);
	return answer;
}

// What else QuickJS imports from "env". Fuel ends what does not end by itself, and there
// are no modules to load.
EXPORT("host_interrupt") int env_interrupt(void) { return 0; }
EXPORT("host_module_normalize") char *env_normalize(const char *base, const char *name) { return 0; }
EXPORT("host_module_load") char *env_load(const char *name, int *len) { return 0; }
EXPORT("host_get_timezone_offset") int env_timezone(int hi, int lo) { return 0; }

// The clock, which stands while the module starts up: QuickJS seeds Math.random with it,
// which the prelude replaces. All calls can then start from one snapshot.
EXPORT("host_clock") int env_clock(int id, long long precision, long long *at) {
	void *context = qjs_get_context_ptr();
	if (context && JS_GetContextOpaque(context)) return wasi_clock(id, precision, at);
	*at = 0;
	return 0;
}
EXPORT("host_promise_rejection") void env_rejection(value *promise, value *reason, int handled) {
	if (JS_GetContextOpaque(qjs_get_context_ptr())) call(handled ? HANDLED : REJECTED, promise, reason);
	qjs_free_value(promise);
	qjs_free_value(reason);
}

static value *function(char name) { return qjs_new_host_function(&name, 1, 0); }

// The section toolhost.script is the length of the prelude in LENGTH digits, the prelude,
// and the bytecode of types.js.
EXPORT("th_initiali") void initialize /* build.sh renames it to _initialize */(void) {
	quickjs_initialize();
	if (qjs_init()) __builtin_trap();
	qjs_set_memory_limit(MEMORY);
	qjs_set_max_stack_size(STACK);
	qjs_set_promise_rejection_handler(1);

	char digits[LENGTH], file = 0;
	host_read(SCRIPT, digits, LENGTH);
	int n = number(digits);
	char *p = wasm_malloc(LENGTH + n + 1);
	if (!p) __builtin_trap();
	host_read(SCRIPT, p, LENGTH + n);
	p[LENGTH + n] = 0;
	value *prelude = qjs_eval(p + LENGTH, n, &file, 0);
	wasm_free(p);
	if (qjs_is_exception(prelude)) __builtin_trap();

	value *argv[6] = {function('r'), function('w'), function('s'), function('c'), function('p'), function('l')};
	value *undefined = qjs_get_undefined();
	value *step = qjs_call(prelude, undefined, 6, argv);
	if (qjs_is_exception(step)) __builtin_trap();
	for (int i = 0; i < 6; i++) qjs_free_value(argv[i]);
	qjs_free_value(prelude);
	qjs_free_value(undefined);
	JS_SetContextOpaque(qjs_get_context_ptr(), step);
}

// step has the prelude take what has happened, runs all jobs that follow from it, and
// asks how things stand: what toolhost_invoke returns. A script that has broken even the
// prelude has failed.
static int step(int what, int id, int code) {
	value *a = qjs_new_number(id), *b = qjs_new_number(code);
	int answer = call(what, a, b);
	while (answer >= 0 && qjs_is_job_pending())
		if (qjs_execute_pending_job() < 0) qjs_free_value(qjs_get_exception());
	if (answer >= 0) answer = call(STATE, a, b);
	if (answer < 0) answer = call(BROKEN, a, b);
	qjs_free_value(a);
	qjs_free_value(b);
	return answer < 0 ? 1 : answer;
}

EXPORT("toolhost_invoke") int invoke(void) { return step(START, 0, 0); }
EXPORT("toolhost_resume") int resume(int id, int code) { return step(ENDED, id, code); }
