// CPython as a reactor of toolhost_v1: the functions of the contract as the module
// _toolhost, a frozen standard library, and a start that no call could tell from another,
// so that the host keeps its state and every call begins with the script loaded.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <time.h>
#include <wasi/api.h>

#define IMPORT(name) __attribute__((import_module("toolhost_v1"), import_name(name)))
IMPORT("read") int host_read(int field, void *p, int cap);
IMPORT("write") int host_write(int stream, const void *p, int n);
IMPORT("progress") int host_progress(double done, double total, const char *p, int n);
IMPORT("call") int host_call(const char *op, int op_len, const char *p, int n);
IMPORT("call_start") int host_call_start(const char *op, int op_len, const char *p, int n);

enum { FIELD_ARGS, FIELD_TOOL, FIELD_CONTEXT, FIELD_RESPONSE, FIELD_SCRIPT };
enum { STREAM_LOG_ERROR = 11 };

// While Python starts up it asks nothing that belongs to a call: the standard streams are
// what they always are, and no time passes. libc asks in a constructor of its own, so the
// functions of WASI themselves are wrapped.
static int starting = 1;

// start_time is where a plugin's clock stands if it was granted none: 2022-01-01.
#define START_TIME (1640995200ull * 1000000000ull)

#define STANDARD(fd) ((fd) >= 0 && (fd) <= 2)

int __real___wasi_fd_filestat_get(int fd, __wasi_filestat_t *stat);
int __wrap___wasi_fd_filestat_get(int fd, __wasi_filestat_t *stat) {
	if (!STANDARD(fd)) return __real___wasi_fd_filestat_get(fd, stat);
	memset(stat, 0, sizeof *stat);
	stat->filetype = __WASI_FILETYPE_CHARACTER_DEVICE;
	return 0;
}

int __real___wasi_fd_seek(int fd, int64_t offset, uint8_t whence, uint64_t *at);
int __wrap___wasi_fd_seek(int fd, int64_t offset, uint8_t whence, uint64_t *at) {
	return STANDARD(fd) ? __WASI_ERRNO_SPIPE : __real___wasi_fd_seek(fd, offset, whence, at);
}

int __real___wasi_fd_tell(int fd, uint64_t *at);
int __wrap___wasi_fd_tell(int fd, uint64_t *at) {
	return STANDARD(fd) ? __WASI_ERRNO_SPIPE : __real___wasi_fd_tell(fd, at);
}

int __real___wasi_clock_time_get(int id, uint64_t precision, uint64_t *time);
int __wrap___wasi_clock_time_get(int id, uint64_t precision, uint64_t *time) {
	if (!starting) return __real___wasi_clock_time_get(id, precision, time);
	*time = START_TIME;
	return 0;
}

// The host sleeps for a time, by the monotonic clock. Python sleeps until one.
int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left) {
	struct timespec d = *time, now = {0};
	if (flags & TIMER_ABSTIME) clock_gettime(clock, &now);
	d.tv_sec -= now.tv_sec;
	d.tv_nsec -= now.tv_nsec;
	if (d.tv_nsec < 0) {
		d.tv_sec--;
		d.tv_nsec += 1000000000;
	}
	return d.tv_sec < 0 ? 0 : __real_clock_nanosleep(CLOCK_MONOTONIC, 0, &d, left);
}

// The module _toolhost.

static PyObject *read_field(PyObject *self, PyObject *arg) {
	int field = PyLong_AsInt(arg);
	if (field == -1 && PyErr_Occurred()) return NULL;
	int n = host_read(field, NULL, 0);
	if (n < 0) Py_RETURN_NONE;
	PyObject *bytes = PyBytes_FromStringAndSize(NULL, n);
	if (bytes) host_read(field, PyBytes_AS_STRING(bytes), n);
	return bytes;
}

static PyObject *write_stream(PyObject *self, PyObject *args) {
	int stream;
	const char *p;
	Py_ssize_t n;
	if (!PyArg_ParseTuple(args, "iy#:write", &stream, &p, &n)) return NULL;
	return PyLong_FromLong(host_write(stream, p, (int)n));
}

static PyObject *progress(PyObject *self, PyObject *args) {
	double done, total;
	const char *p;
	Py_ssize_t n;
	if (!PyArg_ParseTuple(args, "ddy#:progress", &done, &total, &p, &n)) return NULL;
	return PyLong_FromLong(host_progress(done, total, p, (int)n));
}

static PyObject *operation(PyObject *args, int (*f)(const char *, int, const char *, int)) {
	const char *op, *p;
	Py_ssize_t m, n;
	if (!PyArg_ParseTuple(args, "s#y#", &op, &m, &p, &n)) return NULL;
	return PyLong_FromLong(f(op, (int)m, p, (int)n));
}

static PyObject *call(PyObject *self, PyObject *args) { return operation(args, host_call); }
static PyObject *call_start(PyObject *self, PyObject *args) { return operation(args, host_call_start); }

static PyMethodDef methods[] = {
	{"read", read_field, METH_O, "read(field): the field's bytes, or None if it is absent"},
	{"write", write_stream, METH_VARARGS, "write(stream, bytes): the code of the host"},
	{"progress", progress, METH_VARARGS, "progress(done, total, message): the code of the host"},
	{"call", call, METH_VARARGS, "call(op, request): the code of the host; field 3 has the response"},
	{"call_start", call_start, METH_VARARGS, "call_start(op, request): the id of the operation, or a code below 0"},
	{0},
};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_toolhost", NULL, -1, methods};
static PyObject *init_toolhost(void) { return PyModule_Create(&module); }

// Start-up.

extern const struct _frozen toolhost_frozen[];
static PyObject *f_invoke, *f_resume, *f_describe, *f_restored;

static _Noreturn void die(const char *why) {
	if (PyErr_Occurred()) PyErr_Print();
	host_write(STREAM_LOG_ERROR, why, (int)strlen(why));
	__builtin_trap();
}

static void ok(PyStatus status) {
	if (PyStatus_Exception(status)) die(status.err_msg ? status.err_msg : "Python does not start");
}

__attribute__((constructor(60000))) static void start(void) {
	PyImport_FrozenModules = toolhost_frozen;
	PyImport_AppendInittab("_toolhost", init_toolhost);

	PyPreConfig pre;
	PyPreConfig_InitIsolatedConfig(&pre);
	pre.utf8_mode = 1;
	ok(Py_PreInitialize(&pre));

	PyConfig c;
	PyConfig_InitIsolatedConfig(&c);
	c.site_import = 0;
	c.install_signal_handlers = 0;
	c.pathconfig_warnings = 0;
	c.write_bytecode = 0;
	c.use_hash_seed = 1; // the same for every start: a snapshot is one start anyway
	c.hash_seed = 0;
	c.module_search_paths_set = 1;
	struct { wchar_t **field; const wchar_t *value; } paths[] = {
		{&c.program_name, L"python"}, {&c.executable, L"/python"}, {&c.base_executable, L"/python"},
		{&c.prefix, L"/"}, {&c.base_prefix, L"/"}, {&c.exec_prefix, L"/"}, {&c.base_exec_prefix, L"/"},
		{&c.stdlib_dir, L"/lib"},
	};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) ok(PyConfig_SetString(&c, paths[i].field, paths[i].value));
	ok(Py_InitializeFromConfig(&c));
	PyConfig_Clear(&c);

	PyObject *m = PyImport_ImportModule("toolhost._run");
	if (!m) die("toolhost._run cannot be imported");
	f_invoke = PyObject_GetAttrString(m, "invoke");
	f_resume = PyObject_GetAttrString(m, "resume");
	f_describe = PyObject_GetAttrString(m, "describe");
	f_restored = PyObject_GetAttrString(m, "restored");
	PyObject *r = PyObject_CallMethod(m, "boot", NULL);
	if (!r) die("toolhost._run.boot failed");
	Py_DECREF(r);
}

// code is what a function of toolhost._run has returned; 2 says that it is broken.
static int code(PyObject *result) {
	int c = result ? PyLong_AsInt(result) : -1;
	Py_XDECREF(result);
	if (!PyErr_Occurred()) return c;
	PyErr_Print();
	return 2;
}

#define EXPORT(name) __attribute__((export_name(name)))
EXPORT("toolhost_invoke") int toolhost_invoke(void) { starting = 0; return code(PyObject_CallNoArgs(f_invoke)); }
EXPORT("toolhost_resume") int toolhost_resume(int id, int result) { return code(PyObject_CallFunction(f_resume, "ii", id, result)); }
EXPORT("toolhost_describe") int toolhost_describe(void) { starting = 0; return code(PyObject_CallNoArgs(f_describe)); }
EXPORT("toolhost_restored") void toolhost_restored(void) { starting = 0; code(PyObject_CallNoArgs(f_restored)); }
