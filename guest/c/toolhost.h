/* toolhost.h: tools of AI agents in C, as sandboxed WebAssembly plugins for Toolhost.
 *
 *     #include "toolhost.h"
 *
 *     TOOLHOST_PLUGIN({"name": "words", "version": "1.0.0", "description": "Counts words."})
 *
 *     TOOLHOST_TOOL(shout, {
 *         "description": "Writes a text in capitals.",
 *         "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
 *     }) {
 *         th_str text = th_string(th_get(args, "text"), "");
 *         …
 *         th_put_string(th_result(), NULL, text.p);
 *         return TH_OK;
 *     }
 *
 *     clang --target=wasm32-wasi -mexec-model=reactor -O2 -o words.wasm words.c
 *
 * One file of a plugin has TOOLHOST_PLUGIN; any number of files have tools. All memory that the
 * functions return is the arena's: it begins as zeros and lives until the call has ended. An
 * instance runs one call, on one thread.
 */
#ifndef TOOLHOST_H
#define TOOLHOST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a tool returns. */
enum { TH_OK = 0, TH_FAILED = 1, TH_CONNECTION = 3, TH_WAITING = 4 };

/* Fields and streams of the contract. */
enum { TH_ARGS, TH_TOOL, TH_CONTEXT, TH_RESPONSE, TH_SCRIPT };
enum { TH_RESULT, TH_ERROR, TH_MANIFEST, TH_OUTPUT, TH_ERROR_OUTPUT, TH_CONTENT };

/* Levels of th_log. */
enum { TH_LOG_DEBUG = 8, TH_LOG_INFO, TH_LOG_WARN, TH_LOG_ERROR };

/* Bytes, with a zero byte after them. p is NULL where there is no text. */
typedef struct { const char *p; size_t n; } th_str;

/* A valid JSON value in a text. json is NULL where there is no value: all functions take that too. */
typedef struct { const char *json; size_t n; } th_value;

typedef enum { TH_MISSING, TH_NULL, TH_BOOL, TH_NUMBER, TH_STRING, TH_ARRAY, TH_OBJECT } th_type;

/* JSON that is being written. It begins as {0}. */
typedef struct { char *p; size_t n, cap; uint64_t objects; unsigned depth; bool comma; } th_json;

/* An operation of the host. Once it is done, code is below 0 if it failed, and response has what it
 * answered: for a failure {"code", "message"}. */
typedef struct th_op { bool done; int code; th_value response; int id; struct th_op *next; } th_op;

/* A part of a tool that runs when operations have ended. It returns what a tool returns. */
typedef int th_step(void *state);

/* The functions of the contract. A native program, such as a test, has its own. */
#ifdef __wasm__
#define TH__IMPORT(name) __attribute__((import_module("toolhost_v1"), import_name(name)))
#else
#define TH__IMPORT(name)
#endif
TH__IMPORT("read") int th_read(int field, void *p, size_t cap);
TH__IMPORT("write") int th_write(int stream, const void *p, size_t n);
TH__IMPORT("progress") int th__progress(double done, double total, const char *message, size_t n);
TH__IMPORT("call") int th__call(const char *op, size_t op_n, const char *request, size_t n);
TH__IMPORT("call_start") int th__call_start(const char *op, size_t op_n, const char *request, size_t n);

typedef struct th__tool { const char *name, *about; int (*run)(th_value args); struct th__tool *next; } th__tool;

/* The state of a plugin, defined by TOOLHOST_PLUGIN. */
extern struct th__plugin {
	const char *about;
	uintptr_t free, end; /* of the arena */
	th__tool *tools, **last;
	th_json result;
	th_op *ops;
	size_t pending;
	th_step *step;
	void *state;
	bool all;
} th__plugin;

/* th_panic ends the call for a fault of the plugin: the text is for the operator, not for the model. */
__attribute__((noreturn)) static inline void th_panic(const char *text) {
	th_write(TH_LOG_ERROR, text, strlen(text));
	__builtin_trap();
}

/* ---- memory ---- */

#ifdef __wasm__
static inline void th__grow(size_t n) {
	size_t pages = n / 65536 + 1, at = __builtin_wasm_memory_grow(0, pages);
	if (at == (size_t)-1) th_panic("out of memory");
	if (at * 65536 != th__plugin.end) th__plugin.free = at * 65536;
	th__plugin.end = (at + pages) * 65536;
}
#endif

/* th_alloc returns n bytes of the arena, which are 0. They are freed when the call has ended. (A native
 * program gets them from calloc.) */
static inline void *th_alloc(size_t n) {
	if (n > SIZE_MAX / 2) th_panic("out of memory");
#ifdef __wasm__
	n = (n + 15) & ~(size_t)15;
	if (n > th__plugin.end - th__plugin.free) th__grow(n);
	void *p = (void *)th__plugin.free;
	th__plugin.free += n;
#else
	void *p = calloc(n + 1, 1);
	if (!p) th_panic("out of memory");
#endif
	return p;
}

/* th_field reads a field of the contract. Its p is NULL if the field is absent. */
static inline th_str th_field(int field) {
	size_t room = th__plugin.end - th__plugin.free;
	int n = th_read(field, (void *)th__plugin.free, room);
	if (n < 0) return (th_str){NULL, 0};
	char *p = th_alloc((size_t)n + 1);
	if ((size_t)n >= room) th_read(field, p, (size_t)n);
	p[n] = 0;
	return (th_str){p, (size_t)n};
}

/* th_format formats as printf does. */
__attribute__((format(printf, 1, 2))) static inline const char *th_format(const char *format, ...) {
	va_list args, again;
	va_start(args, format);
	va_copy(again, args);
	int n = vsnprintf(NULL, 0, format, args);
	if (n < 0) th_panic("th_format: invalid format");
	char *p = th_alloc((size_t)n + 1);
	vsnprintf(p, (size_t)n + 1, format, again);
	va_end(again);
	va_end(args);
	return p;
}

/* ---- reading JSON ---- */

/* th__utf8 is the length of the character at p, or 0 if it is not valid UTF-8. */
static inline size_t th__utf8(const char *at, const char *end) {
	const unsigned char *p = (const unsigned char *)at;
	size_t n = *p < 0x80 ? 1 : *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
	if (n > (size_t)(end - at)) return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xc0) != 0x80) return 0;
	bool overlong = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90);
	bool beyond = (*p == 0xed && p[1] > 0x9f) || (*p == 0xf4 && p[1] > 0x8f);
	return overlong || beyond ? 0 : n;
}

/* th__hex reads 4 hexadecimal digits, or returns -1. */
static inline int th__hex(const char *p, const char *end) {
	if (end - p < 4) return -1;
	int v = 0;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
		if (d < 0) return -1;
		v = v << 4 | d;
	}
	return v;
}

/* th__escape decodes the escape after a backslash at *p into UTF-8, and returns its length, or 0 if it is invalid. */
static inline size_t th__escape(const char **p, const char *end, char out[4]) {
	static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
	if (*p == end) return 0;
	char c = *(*p)++;
	if (c != 'u') {
		const char *name = c ? strchr(names, c) : NULL;
		if (name) *out = values[name - names];
		return name != NULL;
	}

	int u = th__hex(*p, end);
	if (u < 0 || (u >= 0xdc00 && u < 0xe000)) return 0;
	*p += 4;
	if (u >= 0xd800 && u < 0xdc00) {
		if (end - *p < 6 || (*p)[0] != '\\' || (*p)[1] != 'u') return 0;
		int low = th__hex(*p + 2, end);
		if (low < 0xdc00 || low >= 0xe000) return 0;
		*p += 6;
		u = 0x10000 + ((u - 0xd800) << 10) + low - 0xdc00;
	}

	size_t n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i > 0; i--, u >>= 6) out[i] = (char)(0x80 | (u & 63));
	out[0] = (char)(n == 1 ? u : (0xf00 >> n & 0xf0) | u);
	return n;
}

static inline const char *th__space(const char *p, const char *end) {
	while (p < end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
	return p;
}

/* th__text checks the string at p and returns its end, or NULL if it is invalid. */
static inline const char *th__text(const char *p, const char *end) {
	if (p == end || *p++ != '"') return NULL;
	while (p < end && *p != '"') {
		char out[4];
		size_t n = (unsigned char)*p < 0x20 ? 0 : th__utf8(p, end);
		if (!n) return NULL;
		p += n;
		if (p[-1] == '\\' && n == 1 && !th__escape(&p, end, out)) return NULL;
	}
	return p < end ? p + 1 : NULL;
}

/* th__digits checks the digits at p, at least one, and returns their end, or NULL. */
static inline const char *th__digits(const char *p, const char *end) {
	const char *from = p;
	while (p && p < end && *p >= '0' && *p <= '9') p++;
	return p == from ? NULL : p;
}

/* th__scalar checks the value at p that is neither array nor object, and returns its end, or NULL. */
static inline const char *th__scalar(const char *p, const char *end) {
	static const char *const words[] = {"true", "false", "null"};
	if (*p == '"') return th__text(p, end);
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(words[i]);
		if ((size_t)(end - p) >= n && !memcmp(p, words[i], n)) return p + n;
	}

	if (*p == '-') p++;
	p = p < end && *p == '0' ? p + 1 : th__digits(p, end);
	if (p && p < end && *p == '.') p = th__digits(p + 1, end);
	if (p && p < end && (*p == 'e' || *p == 'E')) {
		p++;
		p = th__digits(p < end && (*p == '+' || *p == '-') ? p + 1 : p, end);
	}
	return p;
}

static inline const char *th__key(const char *p, const char *end) {
	p = th__text(th__space(p, end), end);
	if (p) p = th__space(p, end);
	return p && p < end && *p == ':' ? p + 1 : NULL;
}

/* How deeply th_parse lets arrays and objects be nested. */
enum { TH_MAX_DEPTH = 1024 };

/* th_parse checks that a text is one JSON value of RFC 8259, in UTF-8 and without lone surrogates.
 * It returns no value otherwise. It neither copies the text nor allocates. */
static inline th_value th_parse(const char *text, size_t n) {
	const th_value none = {NULL, 0};
	const char *p = text, *end = text + n;
	unsigned char objects[TH_MAX_DEPTH / 8] = {0};
	for (size_t depth = 0;;) {
		p = th__space(p, end);
		if (p == end) return none;
		bool object = *p == '{';
		if (object || *p == '[') {
			if (depth == TH_MAX_DEPTH) return none;
			char close = object ? '}' : ']';
			p = th__space(p + 1, end);
			if (p < end && *p == close) {
				p++;
			} else {
				if (object && !(p = th__key(p, end))) return none;
				unsigned char bit = (unsigned char)(1 << depth % 8);
				objects[depth / 8] = (unsigned char)(object ? objects[depth / 8] | bit : objects[depth / 8] & ~bit);
				depth++;
				continue;
			}
		} else if (!(p = th__scalar(p, end))) {
			return none;
		}

		for (;; depth--, p++) { /* after a value */
			p = th__space(p, end);
			if (!depth && p == end) {
				text = th__space(text, end);
				while (p[-1] == ' ' || p[-1] == '\n' || p[-1] == '\t' || p[-1] == '\r') p--;
				return (th_value){text, (size_t)(p - text)};
			}
			if (!depth || p == end) return none;
			object = objects[(depth - 1) / 8] >> (depth - 1) % 8 & 1;
			if (*p == ',') break;
			if (*p != (object ? '}' : ']')) return none;
		}
		p++;
		if (object && !(p = th__key(p, end))) return none;
	}
}

static inline th_type th_type_of(th_value v) {
	switch (v.n ? *v.json : 0) {
	case 0: return TH_MISSING;
	case 'n': return TH_NULL;
	case 't': case 'f': return TH_BOOL;
	case '"': return TH_STRING;
	case '[': return TH_ARRAY;
	case '{': return TH_OBJECT;
	default: return TH_NUMBER;
	}
}

/* The elements of an array or the members of an object:
 *
 *     for (th_iter i = th_each(list); th_next(&i);) … i.value …
 */
typedef struct { th_value key, value; const char *p, *end; bool object; } th_iter;

static inline th_iter th_each(th_value v) {
	th_iter i = {{NULL, 0}, {NULL, 0}, v.json, v.json, th_type_of(v) == TH_OBJECT};
	if (i.object || th_type_of(v) == TH_ARRAY) i.p++, i.end += v.n - 1;
	return i;
}

/* th__skip returns the end of the valid value at p. */
static inline const char *th__skip(const char *p, const char *end) {
	size_t depth = 0;
	while (p < end) {
		char c = *p++;
		if (c == '"') {
			for (; p < end && *p != '"'; p++)
				if (*p == '\\' && p + 1 < end) p++;
			if (p < end) p++;
		} else if (c == '{' || c == '[') {
			depth++;
		} else if (c == '}' || c == ']') {
			depth--;
		} else if (!depth) {
			while (p < end && !strchr(",]} \n\t\r", *p)) p++;
		}
		if (!depth) break;
	}
	return p;
}

/* th_next moves on to the next element or member, and returns false after the last. */
static inline bool th_next(th_iter *i) {
	const char *p = th__space(i->p, i->end);
	if (p < i->end && *p == ',') p = th__space(p + 1, i->end);
	if (p >= i->end) return false;
	if (i->object) {
		const char *key = p;
		p = th__skip(p, i->end);
		i->key = (th_value){key, (size_t)(p - key)};
		p = th__space(p, i->end);
		if (p < i->end) p = th__space(p + 1, i->end);
	}
	i->p = th__skip(p, i->end);
	i->value = (th_value){p, (size_t)(i->p - p)};
	return true;
}

/* th_is reports whether a JSON string, such as a key, is that text. */
static inline bool th_is(th_value string, const char *text) {
	if (th_type_of(string) != TH_STRING) return false;
	size_t left = strlen(text);
	for (const char *p = string.json + 1, *end = string.json + string.n - 1; p < end;) {
		char out[4] = {*p++};
		size_t n = *out == '\\' ? th__escape(&p, end, out) : 1;
		if (n > left || memcmp(out, text, n)) return false;
		text += n, left -= n;
	}
	return !left;
}

/* th_get is a member of an object, by its name: the first, if there are several. */
static inline th_value th_get(th_value object, const char *key) {
	if (th_type_of(object) == TH_OBJECT)
		for (th_iter i = th_each(object); th_next(&i);)
			if (th_is(i.key, key)) return i.value;
	return (th_value){NULL, 0};
}

/* th_string is a string as UTF-8, or the text missing (or NULL) if the value is none. A string may contain zero bytes. */
static inline th_str th_string(th_value v, const char *missing) {
	if (th_type_of(v) != TH_STRING) return (th_str){missing, missing ? strlen(missing) : 0};
	char *text = th_alloc(v.n), *to = text;
	for (const char *p = v.json + 1, *end = v.json + v.n - 1; p < end;) {
		if (*p == '\\') {
			p++;
			to += th__escape(&p, end, to);
		} else {
			*to++ = *p++;
		}
	}
	*to = 0;
	return (th_str){text, (size_t)(to - text)};
}

static inline bool th_bool(th_value v, bool missing) { return th_type_of(v) == TH_BOOL ? *v.json == 't' : missing; }

/* th_number is a number, or missing if the value is none. */
static inline double th_number(th_value v, double missing) {
	static const double tens[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
	if (th_type_of(v) != TH_NUMBER) return missing;
	int64_t digits = 0;
	size_t point = v.n, i = *v.json == '-';
	for (; v.n <= 16 && i < v.n; i++) { /* at most 15 digits and a point are exact in a double */
		if (v.json[i] == '.') point = i + 1;
		else if (v.json[i] >= '0' && v.json[i] <= '9') digits = digits * 10 + v.json[i] - '0';
		else break;
	}
	if (i == v.n && digits < 1000000000000000) return (*v.json == '-' ? -(double)digits : (double)digits) / tens[v.n - point];

	char *text = th_alloc(v.n + 1);
	memcpy(text, v.json, v.n);
	return strtod(text, NULL);
}

/* th_int is a whole number, or missing if the value is none that an int64_t can have. */
static inline int64_t th_int(th_value v, int64_t missing) {
	if (th_type_of(v) != TH_NUMBER) return missing;
	bool negative = *v.json == '-';
	int64_t n = 0;
	for (size_t i = negative; i < v.n; i++) {
		if (v.json[i] < '0' || v.json[i] > '9') { /* 1.0, 1e3 */
			double d = th_number(v, 0);
			return d >= -0x1p63 && d < 0x1p63 && (double)(int64_t)d == d ? (int64_t)d : missing;
		}
		int64_t digit = v.json[i] - '0';
		if (__builtin_mul_overflow(n, 10, &n) || __builtin_sub_overflow(n, digit, &n)) return missing;
	}
	if (!negative && n == INT64_MIN) return missing;
	return negative ? n : -n;
}

/* ---- writing JSON ---- */

static inline void th__add(th_json *j, const char *p, size_t n) {
	if (n > j->cap - j->n) {
		if (n > SIZE_MAX / 8 - j->n) th_panic("out of memory");
		size_t cap = ((j->n + n) * 2 + 128) & ~(size_t)15, more = cap - j->cap;
		if (j->p && (uintptr_t)j->p + j->cap == th__plugin.free && more <= th__plugin.end - th__plugin.free) {
			th_alloc(more);
		} else {
			char *to = th_alloc(cap);
			if (j->n) memcpy(to, j->p, j->n);
			j->p = to;
		}
		j->cap = cap;
	}
	if (n) memcpy(j->p + j->n, p, n);
	j->n += n;
}

/* th__quote writes a string. Bytes that are not UTF-8 become U+FFFD. */
static inline void th__quote(th_json *j, const char *p, size_t n) {
	const char *from = p, *end = p + n;
	th__add(j, "\"", 1);
	while (p < end) {
		size_t len = (unsigned char)*p < 0x20 || *p == '"' || *p == '\\' ? 0 : th__utf8(p, end);
		if (len) {
			p += len;
			continue;
		}
		unsigned char c = (unsigned char)*p;
		char escape[] = {'\\', 'u', '0', '0', "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]};
		th__add(j, from, (size_t)(p - from));
		if (c >= 0x80) th__add(j, "\xef\xbf\xbd", 3);
		else th__add(j, escape, sizeof escape);
		from = ++p;
	}
	th__add(j, from, (size_t)(p - from));
	th__add(j, "\"", 1);
}

static inline void th__member(th_json *j, const char *key) {
	bool object = j->depth && j->objects >> (j->depth - 1) & 1;
	if (object && !key) th_panic("JSON: a member of an object has no key");
	if (key && !object) th_panic("JSON: a key outside of an object");
	if (j->n && !j->depth) th_panic("JSON: more than one value");
	if (j->comma) th__add(j, ",", 1);
	j->comma = true;
	if (key) {
		th__quote(j, key, strlen(key));
		th__add(j, ":", 1);
	}
}

static inline void th__open(th_json *j, const char *key, bool object) {
	if (j->depth == 64) th_panic("JSON is nested too deeply");
	th__member(j, key);
	th__add(j, object ? "{" : "[", 1);
	j->objects = object ? j->objects | 1ull << j->depth : j->objects & ~(1ull << j->depth);
	j->depth++;
	j->comma = false;
}

/* The th_put functions write a value. The key is NULL but in an object. */
static inline void th_put_object(th_json *j, const char *key) { th__open(j, key, true); }
static inline void th_put_array(th_json *j, const char *key) { th__open(j, key, false); }

/* th_end closes the object or array that was opened last. What is open at the end of a result or a
 * request is closed there. */
static inline void th_end(th_json *j) {
	if (!j->depth) th_panic("th_end: nothing is open");
	j->depth--;
	th__add(j, j->objects >> j->depth & 1 ? "}" : "]", 1);
	j->comma = true;
}

static inline void th_put_str(th_json *j, const char *key, th_str s) {
	th__member(j, key);
	th__quote(j, s.p, s.n);
}
static inline void th_put_string(th_json *j, const char *key, const char *s) { th_put_str(j, key, (th_str){s, strlen(s)}); }

/* th_put_json writes JSON as it stands. */
static inline void th_put_json(th_json *j, const char *key, const char *json) {
	th__member(j, key);
	th__add(j, json, strlen(json));
}
static inline void th_put_null(th_json *j, const char *key) { th_put_json(j, key, "null"); }
static inline void th_put_bool(th_json *j, const char *key, bool b) { th_put_json(j, key, b ? "true" : "false"); }

/* th_put_value writes a value that was read, or null if there is none. */
static inline void th_put_value(th_json *j, const char *key, th_value v) {
	th__member(j, key);
	th__add(j, v.json ? v.json : "null", v.json ? v.n : 4);
}

static inline void th_put_int(th_json *j, const char *key, int64_t n) {
	char text[20], *p = text + sizeof text;
	uint64_t left = n < 0 ? -(uint64_t)n : (uint64_t)n;
	do *--p = (char)('0' + left % 10);
	while (left /= 10);
	if (n < 0) *--p = '-';
	th__member(j, key);
	th__add(j, p, (size_t)(text + sizeof text - p));
}

/* th_put_number writes the shortest number that reads as the same double, or null if it is not finite. */
static inline void th_put_number(th_json *j, const char *key, double d) {
	char text[32];
	if (d > -1e15 && d < 1e15 && d == (double)(int64_t)d) {
		th_put_int(j, key, (int64_t)d);
	} else if (d - d != 0) {
		th_put_null(j, key);
	} else {
		for (int digits = 15; digits <= 17; digits++) {
			snprintf(text, sizeof text, "%.*g", digits, d);
			if (strtod(text, NULL) == d) break;
		}
		th_put_json(j, key, text);
	}
}

/* TH_JSON is JSON as a string, without escapes: TH_JSON({"type": "string"}). */
#define TH_JSON(...) #__VA_ARGS__

/* ---- a call ---- */

/* th_result is where a tool writes its result. A tool that writes nothing has none. */
static inline th_json *th_result(void) { return &th__plugin.result; }

/* th_fail ends a tool with an error for the model: return th_fail("no such city"); */
static inline int th_fail(const char *text) {
	th_write(TH_ERROR, text, strlen(text));
	return TH_FAILED;
}

static inline void th__close(th_json *j) {
	while (j->depth) th_end(j);
}

/* th_connect ends a tool because the user has to connect an account first. subject and setup_url may be NULL. */
static inline int th_connect(const char *provider, const char *subject, const char *setup_url) {
	th_json j = {0};
	th_put_object(&j, NULL);
	th_put_string(&j, "provider", provider);
	if (subject) th_put_string(&j, "subject", subject);
	if (setup_url) th_put_string(&j, "setup_url", setup_url);
	th__close(&j);
	th_write(TH_ERROR, j.p, j.n);
	return TH_CONNECTION;
}

/* The functions that write return 0, or 1 once the call is being stopped: finish soon. A value below 0 says
 * that the host has refused what was written. */

/* th_progress reports progress. A negative total is unknown; the message may be NULL. */
static inline int th_progress(double done, double total, const char *message) { return th__progress(done, total, message, message ? strlen(message) : 0); }

/* th_print writes live output, as printf does, which it takes less code than. */
static inline int th_print(const char *text) { return th_write(TH_OUTPUT, text, strlen(text)); }

/* th_log writes a record for the operator. Models never see it. */
static inline int th_log(int level, const char *text) { return th_write(level, text, strlen(text)); }

/* th_content adds a content block to the answer. The contract has its fields. */
static inline int th_content(th_json *block) {
	th__close(block);
	return th_write(TH_CONTENT, block->p, block->n);
}

/* th_image adds an image to the answer. */
static inline int th_image(const void *data, size_t n, const char *mime_type) {
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	if (n > SIZE_MAX / 4) th_panic("out of memory");
	const unsigned char *p = data;
	char *text = th_alloc((n + 2) / 3 * 4 + 1), *to = text;
	for (size_t i = 0; i < n; i += 3) {
		uint32_t b = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
		for (size_t k = 0; k < 4; k++) *to++ = i + k <= n ? digits[b >> (18 - 6 * k) & 63] : '=';
	}

	th_json block = {0};
	th_put_object(&block, NULL);
	th_put_string(&block, "type", "image");
	th_put_string(&block, "data", text);
	th_put_string(&block, "mimeType", mime_type);
	return th_content(&block);
}

/* th_resource adds a text with an address, such as note://1, to the answer: a file that the tool has made. */
static inline int th_resource(const char *uri, const char *mime_type, const char *text) {
	th_json block = {0};
	th_put_object(&block, NULL);
	th_put_string(&block, "type", "resource");
	th_put_string(&block, "uri", uri);
	th_put_string(&block, "mimeType", mime_type);
	th_put_string(&block, "text", text);
	return th_content(&block);
}

/* th_context has the facts of the call: call_id, session, attempt, timeout_ms, fuel, locale, config. */
static inline th_value th_context(void) {
	th_str text = th_field(TH_CONTEXT);
	return th_parse(text.p, text.n);
}

/* ---- operations of the host ---- */

static inline void th__ended(th_op *op, int code) {
	th_str text = th_field(TH_RESPONSE);
	*op = (th_op){true, code, th_parse(text.p, text.n), op->id, op->next};
}

static inline th_op *th__operate(const char *name, th_json *request, bool start) {
	th_op *op = th_alloc(sizeof *op);
	th_json none = {0};
	if (!request) request = &none;
	if (!request->n) th_put_object(request, NULL);
	th__close(request);
	int code = (start ? th__call_start : th__call)(name, strlen(name), request->p, request->n);
	if (!start || code < 0) {
		th__ended(op, code);
		return op;
	}

	op->id = code;
	op->next = th__plugin.ops;
	th__plugin.ops = op;
	th__plugin.pending++;
	return op;
}

/* th_do does an operation, and waits for it within the plugin. The contract has their names and requests. A
 * request of NULL is {}. */
static inline th_op *th_do(const char *name, th_json *request) { return th__operate(name, request, false); }

/* th_start starts an operation and returns at once. It is done at once only if the host has refused it. */
static inline th_op *th_start(const char *name, th_json *request) { return th__operate(name, request, true); }

/* th_fail_op ends a tool with the message of an operation that failed. */
static inline int th_fail_op(const th_op *op) { return th_fail(th_string(th_get(op->response, "message"), "the operation failed").p); }

/* th_cancel asks the host to end an operation soon. It ends with the code "canceled", unless it ended otherwise. */
static inline void th_cancel(th_op *op) {
	if (op->done) return;
	th_json request = {0};
	th_put_object(&request, NULL);
	th_put_int(&request, "id", op->id);
	th_do("op.cancel", &request);
}

/* th_kv_get reads a value of the plugin's store: it is th_get(op->response, "value"), missing if there is none. */
static inline th_op *th_kv_get(const char *key) {
	th_json request = {0};
	th_put_object(&request, NULL);
	th_put_string(&request, "key", key);
	return th_do("kv.get", &request);
}

/* th_kv_set stores a value durably. */
static inline th_op *th_kv_set(const char *key, th_json *value) {
	th__close(value);
	th_json request = {0};
	th_put_object(&request, NULL);
	th_put_string(&request, "key", key);
	th_put_value(&request, "value", (th_value){value->p, value->n});
	return th_do("kv.set", &request);
}

/* th_sleep starts a sleep. The plugin needs the clock. */
static inline th_op *th_sleep(int64_t ms) {
	th_json request = {0};
	th_put_object(&request, NULL);
	th_put_int(&request, "ms", ms);
	return th_start("sleep", &request);
}

/* A tool waits outside of its code, where a background run takes no memory and survives a crash of its host:
 *
 *     return th_wait_all(next, state);
 *
 * next(state) continues once all operations that were started have ended. What it needs is in the state, which
 * th_alloc has made; the stack is gone. If all have ended already, it continues at once. */
static inline int th_wait_all(th_step *next, void *state) {
	th__plugin.step = next, th__plugin.state = state, th__plugin.all = true;
	return th__plugin.pending ? TH_WAITING : next(state);
}

/* th_wait_any continues once another operation has ended, whichever that is. */
static inline int th_wait_any(th_step *next, void *state) {
	int code = th_wait_all(next, state);
	if (code == TH_WAITING) th__plugin.all = false;
	return code;
}

/* ---- a plugin ---- */

static inline void th__add_tool(th__tool *tool) {
	if (!th__plugin.last) th__plugin.last = &th__plugin.tools;
	*th__plugin.last = tool;
	th__plugin.last = &tool->next;
}

static inline int th__finish(int code) {
	if (code == TH_OK) {
		th__close(&th__plugin.result);
		th_write(TH_RESULT, th__plugin.result.p, th__plugin.result.n);
	}
	fflush(stdout);
	return code;
}

static inline int th__invoke(void) {
	th_str name = th_field(TH_TOOL), text = th_field(TH_ARGS);
	th_value args = th_parse(text.p, text.n);
	if (!args.json) return th_fail("invalid arguments");
	for (th__tool *t = th__plugin.tools; t; t = t->next)
		if (!strcmp(t->name, name.p)) return th__finish(t->run(args));
	return th_fail("no such tool");
}

static inline int th__resume(int id, int code) {
	th_op *op = th__plugin.ops;
	while (op && (op->id != id || op->done)) op = op->next;
	if (!op) return TH_WAITING;
	th__ended(op, code);
	th__plugin.pending--;
	if (!th__plugin.step || (th__plugin.all && th__plugin.pending)) return TH_WAITING;
	return th__finish(th__plugin.step(th__plugin.state));
}

/* th__describe_as adds the members of a description to an object that is open. */
static inline bool th__describe_as(th_json *j, const char *about) {
	th_value v = th_parse(about, strlen(about));
	if (th_type_of(v) != TH_OBJECT) {
		th_write(TH_MANIFEST, about, strlen(about)); /* the host says what is wrong with it */
		return false;
	}
	for (th_iter i = th_each(v); th_next(&i);) th_put_value(j, th_string(i.key, NULL).p, i.value);
	return true;
}

static inline int th__describe(void) {
	th_json j = {0};
	th_put_object(&j, NULL);
	th_put_string(&j, "abi", "toolhost_v1");
	if (!th__describe_as(&j, th__plugin.about)) return 0;
	th_put_array(&j, "tools");
	for (th__tool *t = th__plugin.tools; t; t = t->next) {
		th_put_object(&j, NULL);
		th_put_string(&j, "name", t->name);
		if (!th__describe_as(&j, t->about)) return 0;
		th_end(&j);
	}
	th__close(&j);
	th_write(TH_MANIFEST, j.p, j.n);
	return 0;
}

/* TOOLHOST_TOOL(name, description) { body } is a tool. The description is JSON: the members of a tool in the
 * manifest, without its name. The body has its arguments as th_value args, and returns TH_OK, or what th_fail,
 * th_connect or a wait returns. The name of the tool need not differ from those of other functions. */
#define TOOLHOST_TOOL(tool, ...) \
	static int th__run_##tool(th_value args); \
	__attribute__((constructor)) static void th__add_##tool(void) { \
		static th__tool t = {#tool, #__VA_ARGS__, th__run_##tool, NULL}; \
		th__add_tool(&t); \
	} \
	static int th__run_##tool(__attribute__((unused)) th_value args)

/* TOOLHOST_PLUGIN(description) makes a plugin. The description is JSON: the members of the manifest, without
 * abi and tools. One file of a plugin has it. */
#define TOOLHOST_PLUGIN(...) \
	static struct { char bytes[16384]; } th__arena __attribute__((aligned(16))); \
	struct th__plugin th__plugin = {.about = #__VA_ARGS__}; \
	__attribute__((constructor(101))) static void th__begin(void) { \
		th__plugin.free = (uintptr_t)&th__arena; \
		th__plugin.end = th__plugin.free + sizeof th__arena; \
	} \
	__attribute__((export_name("toolhost_describe"))) int toolhost_describe(void); \
	__attribute__((export_name("toolhost_invoke"))) int toolhost_invoke(void); \
	__attribute__((export_name("toolhost_resume"))) int toolhost_resume(int id, int code); \
	int toolhost_describe(void) { return th__describe(); } \
	int toolhost_invoke(void) { return th__invoke(); } \
	int toolhost_resume(int id, int code) { return th__resume(id, code); }

#endif
