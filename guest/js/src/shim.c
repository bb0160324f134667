// The shim between QuickJS (quickjs.wasm of npm's quickjs-wasi, which build.sh merges it
// with) and toolhost_v1. It has no static data, so nothing of it has to find a place in
// QuickJS's memory. All it keeps is the function that the prelude returns, as the opaque
// pointer of the context.
//
// The section toolhost.script is the length of the prelude in LENGTH digits, the prelude,
// and what that loads: an ES module of an author, or bytecode. The prelude decides what a
// script finds and how a call runs: prelude.js is that of tools, and
// examples/plugins/script has one of its own, in bytecode. Bytecode begins with a control
// character, which its version is, and text does not.

#define FROM(mod, name) __attribute__((import_module(mod), import_name(name)))
#define Q(ret, name, ...) FROM("quickjs", #name) ret name(__VA_ARGS__)
#define EXPORT(name) __attribute__((export_name(name)))

typedef struct value value; // a JSValue on QuickJS's heap

struct span { // of memory
	void *p;
	int n;
};

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
Q(void *, qjs_get_array_buffer, value *v, int *len);
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
Q(value *, qjs_new_array_buffer, const void *p, int len);
Q(void, JS_SetContextOpaque, void *ctx, void *p);
Q(void *, JS_GetContextOpaque, void *ctx);
FROM("quickjs", "_initialize") void quickjs_initialize(void);

FROM("wasi_snapshot_preview1", "clock_time_get") int wasi_clock(int id, long long precision, long long *at);
FROM("wasi_snapshot_preview1", "random_get") int wasi_random(void *p, int n);
FROM("wasi_snapshot_preview1", "environ_sizes_get") int wasi_environ_sizes(int *count, int *size);
FROM("wasi_snapshot_preview1", "environ_get") int wasi_environ(char **variables, char *text);
FROM("wasi_snapshot_preview1", "fd_prestat_get") int wasi_prestat(int fd, int *prestat);
FROM("wasi_snapshot_preview1", "fd_prestat_dir_name") int wasi_prestat_name(int fd, char *p, int n);
FROM("wasi_snapshot_preview1", "path_open")
int wasi_open(int dir, int follow, const char *p, int n, int how, long long rights, long long inherited, int flags, int *fd);
FROM("wasi_snapshot_preview1", "fd_close") int wasi_close(int fd);
FROM("wasi_snapshot_preview1", "fd_read") int wasi_read(int fd, const struct span *to, int spans, int *n);
FROM("wasi_snapshot_preview1", "fd_pread") int wasi_pread(int fd, const struct span *to, int spans, long long at, int *n);
FROM("wasi_snapshot_preview1", "fd_write") int wasi_write(int fd, const struct span *from, int spans, int *n);
FROM("wasi_snapshot_preview1", "fd_readdir") int wasi_readdir(int fd, void *p, int cap, long long cookie, int *n);
FROM("wasi_snapshot_preview1", "path_filestat_get") int wasi_stat(int dir, int follow, const char *p, int n, void *stat);
FROM("wasi_snapshot_preview1", "path_create_directory") int wasi_mkdir(int dir, const char *p, int n);
FROM("wasi_snapshot_preview1", "path_unlink_file") int wasi_unlink(int dir, const char *p, int n);
FROM("wasi_snapshot_preview1", "path_remove_directory") int wasi_rmdir(int dir, const char *p, int n);
FROM("wasi_snapshot_preview1", "path_rename") int wasi_rename(int dir, const char *p, int n, int to_dir, const char *to, int to_n);
FROM("wasi_snapshot_preview1", "proc_exit") _Noreturn void wasi_exit(int code);

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
	DESCRIBE,  // the manifest is asked for
};

enum { AGAIN = 5 }; // of STATE: run the jobs that there are now, and ask again

enum { SCRIPT = 4, LENGTH = 8, STACK = 512 << 10 };

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

// load evaluates what the section has behind the prelude, and is its value: that of
// bytecode, or the promise of an ES module, which stacks call by that name.
static value *load(const char *module) {
	int n = host_read(SCRIPT, 0, 0);
	char *p = wasm_malloc(n + 1);
	if (!p) return qjs_get_null();
	host_read(SCRIPT, p, n);
	p[n] = 0;
	int from = LENGTH + number(p);
	value *v = module ? qjs_eval(p + from, n - from, module, 1) : qjs_eval_bytecode(p + from, n - from);
	wasm_free(p);
	return v;
}

// environment is the variables that were granted, with a zero byte behind each.
static value *environment(void) {
	int count, size;
	if (wasi_environ_sizes(&count, &size)) return qjs_get_null();
	char **p = wasm_malloc(count * sizeof *p + size + 1);
	if (!p) __builtin_trap();
	wasi_environ(p, (char *)(p + count));
	value *v = qjs_new_string((char *)(p + count), size);
	wasm_free(p);
	return v;
}

enum { // what file is asked to do
	PRESTAT, // fd: the path of a granted folder
	OPEN,    // folder, path, how, flags, rights: a descriptor
	CLOSE,   // fd
	READ,    // fd, buffer, from, length, position or -1: how many bytes
	WRITE,   // fd, buffer, from, length: how many bytes
	READDIR, // fd, buffer, cookie: how many bytes
	STAT,    // folder, path, buffer, whether to follow links
	MKDIR,   // folder, path
	UNLINK,  // folder, path
	RMDIR,   // folder, path
	RENAME,  // folder, path, folder, path
	DECODE,  // buffer, from, length: the text that is there in UTF-8
	ENCODE,  // text: a buffer with it in UTF-8
};

enum { INVALID = 28, STAT_SIZE = 64 };

// file does an operation on files for the module fs.js, which gives all six arguments.
// Its answer is what the operation returns, or an errno of WASI below 0.
static value *file(value **argv) {
	int what = (int)qjs_get_float64(argv[0]), fd = (int)qjs_get_float64(argv[1]), failed = INVALID, answer = 0, n = 0, m = 0;
	const char *s = 0, *t = 0;
	char *buffer = 0;
	struct span span = {0, 0};

	switch (what) {
	case OPEN: case STAT: case MKDIR: case UNLINK: case RMDIR: case RENAME:
		s = qjs_get_string_len(argv[2], &n);
		if (!s) return qjs_new_number(-INVALID);
		break;
	case READ: case WRITE: {
		buffer = qjs_get_array_buffer(argv[2], &m);
		int from = (int)qjs_get_float64(argv[3]), length = (int)qjs_get_float64(argv[4]);
		if (!buffer || from < 0 || length < 0 || length > m || from > m - length) return qjs_new_number(-INVALID);
		span.p = buffer + from;
		span.n = length;
	}
	}

	switch (what) {
	case PRESTAT: {
		int prestat[2];
		failed = wasi_prestat(fd, prestat);
		if (failed) break;
		char *p = wasm_malloc(prestat[1] + 1);
		if (!p) __builtin_trap();
		failed = wasi_prestat_name(fd, p, prestat[1]);
		p[prestat[1]] = 0;
		value *v = failed ? qjs_new_number(-failed) : qjs_new_string(p, prestat[1]);
		wasm_free(p);
		return v;
	}
	case OPEN:
		failed = wasi_open(fd, 1, s, n, (int)qjs_get_float64(argv[3]),
			(long long)qjs_get_float64(argv[5]), 0, (int)qjs_get_float64(argv[4]), &answer);
		break;
	case CLOSE:
		failed = wasi_close(fd);
		break;
	case READ: {
		double at = qjs_get_float64(argv[5]);
		failed = at < 0 ? wasi_read(fd, &span, 1, &answer) : wasi_pread(fd, &span, 1, (long long)at, &answer);
		break;
	}
	case WRITE:
		failed = wasi_write(fd, &span, 1, &answer);
		break;
	case READDIR:
		buffer = qjs_get_array_buffer(argv[2], &m);
		if (buffer) failed = wasi_readdir(fd, buffer, m, (long long)qjs_get_float64(argv[3]), &answer);
		break;
	case STAT:
		buffer = qjs_get_array_buffer(argv[3], &m);
		if (buffer && m >= STAT_SIZE) failed = wasi_stat(fd, (int)qjs_get_float64(argv[4]), s, n, buffer);
		break;
	case MKDIR:
		failed = wasi_mkdir(fd, s, n);
		break;
	case UNLINK:
		failed = wasi_unlink(fd, s, n);
		break;
	case RMDIR:
		failed = wasi_rmdir(fd, s, n);
		break;
	case RENAME:
		t = qjs_get_string_len(argv[4], &m);
		if (t) failed = wasi_rename(fd, s, n, (int)qjs_get_float64(argv[3]), t, m);
		if (t) qjs_free_cstring(t);
		break;
	case DECODE: {
		buffer = qjs_get_array_buffer(argv[1], &m);
		int from = (int)qjs_get_float64(argv[2]), length = (int)qjs_get_float64(argv[3]);
		if (!buffer || from < 0 || length < 0 || length > m || from > m - length) break;
		return qjs_new_string(buffer + from, length);
	}
	case ENCODE: {
		s = qjs_get_string_len(argv[1], &n);
		if (!s) break;
		value *v = qjs_new_array_buffer(s, n);
		qjs_free_cstring(s);
		return v;
	}
	}
	if (s) qjs_free_cstring(s);
	return qjs_new_number(failed ? -failed : answer);
}

// The functions that the prelude gets, by a letter: read, write, start, call, progress,
// load, module, bound, the environment, a random number of 32 bits, exit, file.
EXPORT("host_call") value *env_call(const char *name, int name_len, value *self, int argc, value **argv) {
	int n, m, answer;
	const char *s, *t;
	switch (name[0]) {
	case 'r':
		return text((int)qjs_get_float64(argv[0]));
	case 'l':
		return load(0);
	case 'm':
		s = qjs_get_string_len(argv[0], &n);
		if (!s) __builtin_trap();
		value *v = load(s);
		qjs_free_cstring(s);
		return v;
	case 'b': // of the memory of scripts, in bytes
		qjs_set_memory_limit((int)qjs_get_float64(argv[0]));
		return qjs_get_undefined();
	case 'v':
		return environment();
	case 'x': {
		unsigned random;
		wasi_random(&random, sizeof random);
		return qjs_new_number(random);
	}
	case 'f':
		return file(argv);
	case 'e':
		wasi_exit((int)qjs_get_float64(argv[0]));
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

// jobs runs what promises have made runnable.
static void jobs(void) {
	while (qjs_is_job_pending())
		if (qjs_execute_pending_job() < 0) qjs_free_value(qjs_get_exception());
}

EXPORT("th_initiali") void initialize /* build.sh renames it to _initialize */(void) {
	quickjs_initialize();
	if (qjs_init()) __builtin_trap();
	qjs_set_max_stack_size(STACK);
	qjs_set_promise_rejection_handler(1);

	char digits[LENGTH], file = 0;
	host_read(SCRIPT, digits, LENGTH);
	int n = number(digits);
	char *p = wasm_malloc(LENGTH + n + 1);
	if (!p) __builtin_trap();
	host_read(SCRIPT, p, LENGTH + n);
	p[LENGTH + n] = 0;
	value *prelude = p[LENGTH] < ' ' ? qjs_eval_bytecode(p + LENGTH, n) : qjs_eval(p + LENGTH, n, &file, 0);
	wasm_free(p);
	if (qjs_is_exception(prelude)) __builtin_trap();

	value *argv[] = {function('r'), function('w'), function('s'), function('c'), function('p'), function('l'),
		function('m'), function('b'), function('v'), function('x'), function('e'), function('f')};
	enum { FUNCTIONS = sizeof argv / sizeof *argv };
	value *undefined = qjs_get_undefined();
	value *step = qjs_call(prelude, undefined, FUNCTIONS, argv);
	if (qjs_is_exception(step)) __builtin_trap();
	for (int i = 0; i < FUNCTIONS; i++) qjs_free_value(argv[i]);
	qjs_free_value(prelude);
	qjs_free_value(undefined);
	jobs();
	JS_SetContextOpaque(qjs_get_context_ptr(), step);
}

// step has the prelude take what has happened, runs all jobs that follow from it, and
// asks how things stand: what toolhost_invoke returns. A script that has broken even the
// prelude has failed.
static int step(int what, int id, int code) {
	value *a = qjs_new_number(id), *b = qjs_new_number(code);
	int answer = call(what, a, b);
	for (int again = AGAIN; answer >= 0 && again == AGAIN;) {
		jobs();
		answer = again = call(STATE, a, b);
	}
	if (answer < 0) answer = call(BROKEN, a, b);
	qjs_free_value(a);
	qjs_free_value(b);
	return answer < 0 ? 1 : answer;
}

EXPORT("toolhost_describe") int describe(void) { return step(DESCRIBE, 0, 0); }
EXPORT("toolhost_invoke") int invoke(void) { return step(START, 0, 0); }
EXPORT("toolhost_resume") int resume(int id, int code) { return step(ENDED, id, code); }
