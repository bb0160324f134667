/* The plugin sqlite: SQL over database files in a granted folder, and over tables that exist for one call. */
#include "files.h"
#include "sqlite3.h"

TOOLHOST_PLUGIN({
	"name": "sqlite",
	"version": "1.0.0",
	"description": "Queries and changes SQLite databases in a folder.",
	"needs": {"clock": true, "files": [{"path": "/data", "mode": "write"}]}
})

enum {
	MAX_SECONDS = 8,        /* of one statement, so that it ends before the call does, and is undone */
	MAX_LENGTH = 16 << 20,  /* bytes of a value or a row */
	MAX_HEAP = 40 << 20,    /* bytes of SQLite, of the 64 MiB that a call has */
	MAX_ANSWER = 100000,    /* bytes of the rows as JSON */
	MAX_CELL = 5000,        /* bytes that are shown of a text */
	MAX_BLOB = 1000,        /* bytes that are shown of a blob */
	TRIES = 20,             /* of reading a file that others change meanwhile */
};

__attribute__((constructor)) static void start(void) { sqlite3_initialize(); }

static const char *refused; /* why the last statement was */
static double deadline;

static bool one_of(const char *word, const char *const *words) {
	for (; *words; words++)
		if (!sqlite3_stricmp(word, *words)) return true;
	return false;
}

/* authorize refuses what reaches another file, or how the file is written and locked. */
static int authorize(void *unused, int action, const char *a, const char *b, const char *c, const char *d) {
	static const char *const harmless[] = {
		"application_id", "collation_list", "compile_options", "data_version", "encoding", "foreign_key_check", "foreign_key_list", "foreign_keys", "function_list",
		"index_info", "index_list", "index_xinfo", "integrity_check", "optimize", "page_count", "page_size", "quick_check", "recursive_triggers",
		"table_info", "table_list", "table_xinfo", "user_version", NULL,
	};
	(void)unused, (void)b, (void)c, (void)d;
	if (action == SQLITE_ATTACH && a && *a) refused = "ATTACH is not allowed: a call has one database";
	else if (action == SQLITE_PRAGMA && !one_of(a, harmless)) refused = th_format("PRAGMA %.40s is not allowed", a);
	else return SQLITE_OK;
	return SQLITE_DENY;
}

/* watch ends a statement that takes too long, and each one once the call is being stopped. */
static int watch(void *unused) {
	(void)unused;
	if (seconds_now() > deadline) refused = th_format("it took longer than %d s, and was stopped", MAX_SECONDS);
	else if (th_write(TH_OUTPUT, "", 0) == 1) refused = "canceled";
	else return 0;
	return 1;
}

/* problem says what is wrong with the last statement. */
static const char *problem(sqlite3 *db) {
	const char *text = th_format("%s", sqlite3_errmsg(db));
	if (refused) return refused;
	if (sqlite3_errcode(db) == SQLITE_NOMEM) return "out of memory: ask for less at a time";
	if (strncmp(text, "no such table", 13)) return text;

	th_json names = {0};
	th_put_array(&names, NULL);
	sqlite3_stmt *s = NULL;
	sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name LIMIT 50", -1, &s, NULL);
	while (s && sqlite3_step(s) == SQLITE_ROW) th_put_string(&names, NULL, (const char *)sqlite3_column_text(s, 0));
	sqlite3_finalize(s);
	th_end(&names);
	return th_format("%s: there are %.*s", text, (int)names.n, names.p);
}

/* open_at opens a database with the limits that all have. */
static const char *open_at(const char *path, int flags, sqlite3 **db) {
	refused = NULL;
	deadline = seconds_now() + MAX_SECONDS;
	sqlite3_hard_heap_limit64(MAX_HEAP);
	if (sqlite3_open_v2(path, db, flags, "unix-none")) return problem(*db);
	sqlite3_limit(*db, SQLITE_LIMIT_LENGTH, MAX_LENGTH);
	sqlite3_limit(*db, SQLITE_LIMIT_VDBE_OP, 250000);
	sqlite3_limit(*db, SQLITE_LIMIT_COMPOUND_SELECT, 100);
	sqlite3_limit(*db, SQLITE_LIMIT_TRIGGER_DEPTH, 50);
	if (sqlite3_exec(*db, "PRAGMA cache_spill = OFF", NULL, NULL, NULL)) return problem(*db); /* files.c: a file changes only while a transaction commits */
	sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_set_authorizer(*db, authorize, NULL);
	sqlite3_progress_handler(*db, 20000, watch, NULL);
	return NULL;
}

static int bind_one(sqlite3_stmt *s, int i, th_value v) {
	switch (th_type_of(v)) {
	case TH_MISSING: case TH_NULL: return sqlite3_bind_null(s, i);
	case TH_BOOL: return sqlite3_bind_int(s, i, th_bool(v, false));
	case TH_NUMBER:
		if (th_int(v, 0) || !th_int(v, 1)) return sqlite3_bind_int64(s, i, th_int(v, 0));
		return sqlite3_bind_double(s, i, th_number(v, 0));
	case TH_STRING: {
		th_str text = th_string(v, "");
		return sqlite3_bind_text(s, i, text.p, (int)text.n, SQLITE_STATIC);
	}
	default: return sqlite3_bind_text(s, i, v.json, (int)v.n, SQLITE_STATIC); /* for SQLite's functions of JSON */
	}
}

/* bind gives the parameters their values: by position from an array, by name from an object. */
static const char *bind(sqlite3 *db, sqlite3_stmt *s, th_value params) {
	int want = sqlite3_bind_parameter_count(s), given = 0;
	bool named = th_type_of(params) == TH_OBJECT;
	for (th_iter i = th_each(params); th_next(&i); given++) {
		int at = given + 1;
		if (named) {
			const char *key = th_string(i.key, "").p;
			at = 0;
			for (const char *mark = ":@$"; *mark && !at; mark++) at = sqlite3_bind_parameter_index(s, th_format("%c%s", *mark, key));
			if (!at) return th_format("the statement has no parameter :%.100s", key);
		}
		if (at > want || bind_one(s, at, i.value)) return at > want ? th_format("too many parameters: the statement has %d", want) : problem(db);
	}
	if (given < want) return th_format("%d of %d parameters have no value", want - given, want);
	return NULL;
}

static void put_cell(th_json *j, sqlite3_stmt *s, int i) {
	int n = sqlite3_column_bytes(s, i);
	switch (sqlite3_column_type(s, i)) {
	case SQLITE_INTEGER: {
		int64_t v = sqlite3_column_int64(s, i);
		if (v > -(1ll << 53) && v < 1ll << 53) th_put_int(j, NULL, v);
		else th_put_string(j, NULL, th_format("%lld", (long long)v)); /* most readers of JSON would round it */
		return;
	}
	case SQLITE_FLOAT: th_put_number(j, NULL, sqlite3_column_double(s, i)); return;
	case SQLITE_NULL: th_put_null(j, NULL); return;
	case SQLITE_BLOB: {
		const unsigned char *p = sqlite3_column_blob(s, i);
		char *hex = th_alloc(2 * MAX_BLOB + 1);
		for (int k = 0; k < n && k < MAX_BLOB; k++) memcpy(hex + 2 * k, (char[]){"0123456789abcdef"[p[k] >> 4], "0123456789abcdef"[p[k] & 15]}, 2);
		th_put_object(j, NULL);
		th_put_string(j, "hex", hex);
		th_put_int(j, "bytes", n);
		th_end(j);
		return;
	}
	}
	const char *text = (const char *)sqlite3_column_text(s, i);
	int shown = n > MAX_CELL ? MAX_CELL : n;
	while (shown < n && ((unsigned char)text[shown] & 0xc0) == 0x80) shown--;
	th_put_str(j, NULL, shown == n ? (th_str){text, (size_t)n} : (th_str){th_format("%.*s… (%d bytes)", shown, text, n), (size_t)shown + strlen(th_format("… (%d bytes)", n))});
}

/* put_rows runs a statement, and writes columns, rows and whether there are more. */
static const char *put_rows(th_json *j, sqlite3 *db, sqlite3_stmt *s, int64_t limit) {
	int columns = sqlite3_column_count(s), code;
	size_t from = j->n;
	bool more = false;
	th_put_array(j, "columns");
	for (int i = 0; i < columns; i++) th_put_string(j, NULL, sqlite3_column_name(s, i));
	th_end(j);
	th_put_array(j, "rows");
	for (int64_t row = 0; (code = sqlite3_step(s)) == SQLITE_ROW && !more; row++) {
		more = row == limit || j->n - from > MAX_ANSWER;
		if (more) break;
		th_put_array(j, NULL);
		for (int i = 0; i < columns; i++) put_cell(j, s, i);
		th_end(j);
	}
	while (more && !sqlite3_stmt_readonly(s) && code == SQLITE_ROW) code = sqlite3_step(s); /* RETURNING: all of it is to happen */
	th_end(j);
	th_put_bool(j, "truncated", more);
	return code == SQLITE_ROW || code == SQLITE_DONE ? NULL : problem(db);
}

/* prepare compiles the first statement of a text, which begins there, and moves on behind it. */
static const char *prepare(sqlite3 *db, const char **text, sqlite3_stmt **s) {
	return sqlite3_prepare_v2(db, *text, -1, s, text) ? problem(db) : NULL;
}

/* run_script runs all statements of a text. */
static const char *run_script(sqlite3 *db, const char *text) {
	while (*text) {
		sqlite3_stmt *s = NULL;
		const char *wrong = prepare(db, &text, &s);
		if (!wrong && s) {
			int code;
			while ((code = sqlite3_step(s)) == SQLITE_ROW) {}
			if (code != SQLITE_DONE) wrong = problem(db);
		}
		sqlite3_finalize(s);
		if (wrong) return wrong;
	}
	return NULL;
}

/* the_only compiles a text that has one statement. */
static const char *the_only(sqlite3 *db, const char *text, sqlite3_stmt **s) {
	const char *wrong = prepare(db, &text, s);
	if (wrong) return wrong;
	if (!*s) return "there is no statement";
	sqlite3_stmt *next = NULL;
	wrong = prepare(db, &text, &next);
	bool another = next != NULL;
	sqlite3_finalize(next);
	return wrong || another ? "give one statement at a time" : NULL;
}

/* answer runs a query on an open database. */
static const char *answer(sqlite3 *db, th_value args, bool reads) {
	sqlite3_stmt *s = NULL;
	const char *wrong = the_only(db, th_string(th_get(args, "sql"), "").p, &s);
	if (!wrong && reads && !sqlite3_stmt_readonly(s)) wrong = "query only reads: use execute to change a database";
	if (!wrong) wrong = bind(db, s, th_get(args, "params"));
	if (!wrong) {
		th_json *j = th_result();
		*j = (th_json){0};
		th_put_object(j, NULL);
		wrong = put_rows(j, db, s, th_int(th_get(args, "limit"), 100));
	}
	sqlite3_finalize(s);
	return wrong;
}

/* read_file does something with a database file that must not change meanwhile, and again if it did. */
static int read_file(const char *name, th_value args, const char *(*work)(sqlite3 *db, th_value args, bool reads)) {
	const char *wrong = NULL;
	database file = {.name = name, .path = find(name, &wrong)};
	for (int i = 0; !wrong && i < TRIES; i++) {
		if ((wrong = begin_reading(&file))) break;
		sqlite3 *db = NULL;
		const char *failed = open_at(th_format("file:%s?immutable=1", file.path), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, &db);
		if (!failed) failed = work(db, args, true);
		sqlite3_close(db);
		if (unchanged(&file)) return failed ? th_fail(failed) : TH_OK;
		pause_ms(10 * (i + 1));
	}
	return th_fail(wrong ? wrong : th_format("%s keeps changing: try again", name));
}

TOOLHOST_TOOL(query, {
	"description": "Runs one SQL statement that reads, and answers with its rows, at most 100,000 bytes of them. Without a database it works on tables that setup makes, in memory, for this call. Parameters are ?, :name, @name or $name.",
	"input_schema": {
		"type": "object",
		"properties": {
			"sql": {"type": "string", "description": "One statement, such as SELECT"},
			"database": {"type": "string", "description": "Name of a file in the folder"},
			"params": {"type": ["array", "object"], "description": "Values of the parameters, by position or by name"},
			"setup": {"type": "string", "description": "Statements that are run first, if there is no database"},
			"limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100, "description": "Most rows to show"}
		},
		"required": ["sql"],
		"additionalProperties": false
	},
	"output_schema": {
		"type": "object",
		"properties": {"columns": {"type": "array", "items": {"type": "string"}}, "rows": {"type": "array", "items": {"type": "array"}}, "truncated": {"type": "boolean"}},
		"required": ["columns", "rows", "truncated"]
	},
	"hints": {"readonly": true, "idempotent": true, "open_world": false},
	"limits": {"timeout_seconds": 30},
	"examples": [
		{"args": {"database": "shop.db", "sql": "SELECT name, price FROM products WHERE price > ? ORDER BY price", "params": [2]}, "result": {"columns": ["name", "price"], "rows": [["coffee", 3.5], ["cake", 4]], "truncated": false}},
		{"name": "in memory", "args": {"setup": "CREATE TABLE t (x); INSERT INTO t VALUES (1), (2)", "sql": "SELECT sum(x) FROM t"}, "result": {"columns": ["sum(x)"], "rows": [[3]], "truncated": false}},
		{"name": "a change", "args": {"database": "shop.db", "sql": "DELETE FROM products"}, "error": "query only reads"},
		{"name": "a table that is missing", "args": {"database": "shop.db", "sql": "SELECT * FROM product"}, "error": "no such table: product: there are [\"products\"]"},
		{"name": "a database that is missing", "args": {"database": "x.db", "sql": "SELECT 1"}, "error": "there are [\"shop.db\"]"}
	]
}) {
	th_str name = th_string(th_get(args, "database"), NULL);
	th_str setup = th_string(th_get(args, "setup"), NULL);
	if (name.p) return setup.p ? th_fail("setup is for queries without a database") : read_file(name.p, args, answer);

	sqlite3 *db = NULL;
	const char *wrong = open_at(":memory:", SQLITE_OPEN_READWRITE, &db);
	if (!wrong && setup.p) wrong = run_script(db, setup.p);
	if (!wrong) wrong = answer(db, args, false);
	sqlite3_close(db);
	return wrong ? th_fail(wrong) : TH_OK;
}

/* change runs statements as one transaction, and shows the rows of the last. */
static const char *change(sqlite3 *db, th_value args) {
	const char *text = th_string(th_get(args, "sql"), "").p, *wrong;
	th_value params = th_get(args, "params");
	int64_t before = sqlite3_total_changes64(db);
	sqlite3_stmt *s = NULL, *next = NULL;
	if ((wrong = prepare(db, &text, &s))) return wrong;
	if (!s) return "there is no statement";
	bool several = false;
	th_json *j = th_result();
	while (!wrong) {
		const char *rest = text;
		while (*rest == ';' || *rest == ' ' || *rest == '\n' || *rest == '\t' || *rest == '\r') rest++;
		if (!several && *rest) {
			several = true;
			if (params.json) wrong = "parameters are for one statement at a time";
			else if (sqlite3_strnicmp(sqlite3_sql(s), "BEGIN", 5) && sqlite3_exec(db, "BEGIN", NULL, NULL, NULL)) wrong = problem(db);
			if (wrong) break;
		}
		if ((wrong = bind(db, s, params))) break;
		*j = (th_json){0};
		th_put_object(j, NULL);
		if ((wrong = put_rows(j, db, s, 100))) break;
		sqlite3_finalize(s);
		s = NULL;
		if (!*text || (wrong = prepare(db, &text, &next)) || !next) break;
		s = next;
	}
	sqlite3_finalize(s);
	if (!wrong && !sqlite3_get_autocommit(db) && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL)) wrong = problem(db);
	if (wrong) return wrong;
	th_put_int(j, "changes", sqlite3_total_changes64(db) - before);
	th_put_int(j, "last_insert_rowid", sqlite3_last_insert_rowid(db));
	return NULL;
}

TOOLHOST_TOOL(execute, {
	"description": "Changes a database: runs one SQL statement with parameters, or several as one transaction that happens entirely or not at all. Answers with how many rows changed, and the rows of the last statement, such as those of RETURNING.",
	"input_schema": {
		"type": "object",
		"properties": {
			"database": {"type": "string", "description": "Name of a file in the folder"},
			"sql": {"type": "string", "description": "Statements"},
			"params": {"type": ["array", "object"], "description": "Values of the parameters, by position or by name"},
			"create": {"type": "boolean", "default": false, "description": "Whether to create the database if it is missing"}
		},
		"required": ["database", "sql"],
		"additionalProperties": false
	},
	"output_schema": {
		"type": "object",
		"properties": {
			"columns": {"type": "array", "items": {"type": "string"}}, "rows": {"type": "array", "items": {"type": "array"}}, "truncated": {"type": "boolean"},
			"changes": {"type": "integer"}, "last_insert_rowid": {"type": "integer"}
		},
		"required": ["columns", "rows", "truncated", "changes", "last_insert_rowid"]
	},
	"hints": {"open_world": false},
	"limits": {"timeout_seconds": 30},
	"examples": [
		{"args": {"database": "shop.db", "sql": "INSERT INTO products (name, price) VALUES (:name, :price) RETURNING id", "params": {"name": "milk", "price": 1.2}}, "result": {"columns": ["id"], "rows": [[4]], "truncated": false, "changes": 1, "last_insert_rowid": 4}},
		{"name": "a new database", "args": {"database": "new.db", "create": true, "sql": "CREATE TABLE t (x); INSERT INTO t VALUES (1), (2);"}, "result": {"columns": [], "rows": [], "truncated": false, "changes": 2, "last_insert_rowid": 2}},
		{"name": "all or nothing", "args": {"database": "shop.db", "sql": "DELETE FROM products; INSERT INTO missing VALUES (1)"}, "error": "no such table: missing"},
		{"name": "another file", "args": {"database": "shop.db", "sql": "ATTACH '/etc/passwd' AS p"}, "error": "ATTACH is not allowed"}
	]
}) {
	const char *wrong = NULL;
	database file = {.name = th_string(th_get(args, "database"), "").p};
	file.path = find(file.name, &wrong);
	if (!wrong) wrong = lock(&file);
	if (wrong) return th_fail(wrong);

	sqlite3 *db = NULL;
	bool create = th_bool(th_get(args, "create"), false);
	wrong = check(&file, create);
	if (!wrong) wrong = open_at(file.path, SQLITE_OPEN_READWRITE | (create ? SQLITE_OPEN_CREATE : 0), &db);
	if (!wrong) wrong = change(db, args);
	sqlite3_close(db); /* rolls back what is not committed */
	unlock(&file);
	return wrong ? th_fail(wrong) : TH_OK;
}

/* describe_tables writes what a database has. */
static const char *describe_tables(sqlite3 *db, th_value args, bool reads) {
	(void)args, (void)reads;
	sqlite3_stmt *s = NULL;
	const char *text = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY type DESC, name", *wrong = prepare(db, &text, &s);
	if (!wrong) {
		th_json *j = th_result();
		*j = (th_json){0};
		th_put_object(j, NULL);
		wrong = put_rows(j, db, s, 1000);
	}
	sqlite3_finalize(s);
	return wrong;
}

TOOLHOST_TOOL(schema, {
	"description": "Shows the tables, views, indexes and triggers of a database with the SQL that made them, or without a database the databases of the folder.",
	"input_schema": {"type": "object", "properties": {"database": {"type": "string", "description": "Name of a file in the folder"}}, "additionalProperties": false},
	"hints": {"readonly": true, "idempotent": true, "open_world": false},
	"limits": {"timeout_seconds": 30},
	"examples": [
		{"args": {}, "result": {"databases": ["shop.db"]}},
		{"args": {"database": "shop.db"}, "result": {"columns": ["type", "name", "sql"], "rows": [["table", "products", "CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL)"]], "truncated": false}}
	]
}) {
	th_str name = th_string(th_get(args, "database"), NULL);
	if (name.p) return read_file(name.p, args, describe_tables);
	th_put_object(th_result(), NULL);
	put_databases(th_result(), "databases");
	return TH_OK;
}
