#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* WASI has no locks on files. A call that changes a database announces itself by a file next to it,
 *
 *     NAME-lock-MILLISECONDS-CALL
 *
 * looks whether there is another, and withdraws if so. Two calls at once may both withdraw, and try again, but never
 * both go on. MILLISECONDS is how long the call may run: a lock that is older is of a call that was killed. A call
 * that reads cannot announce itself, because its folder is read-only: it reads again if the file has changed. */

enum { WAIT_SECONDS = 5, SLACK_MS = 2000 };

void pause_ms(int64_t ms) {
	th_json request = {0};
	th_put_object(&request, NULL);
	th_put_int(&request, "ms", ms);
	th_do("sleep", &request);
}

double seconds_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

const char *find(const char *name, const char **problem) {
	size_t n = strlen(name);
	if (!n || n > 200 || *name == '/' || strstr(name, "..") || strpbrk(name, "?#%")) {
		*problem = th_format("invalid database \"%.200s\": want the name of a file in " FOLDER, name);
		return NULL;
	}
	return th_format(FOLDER "/%s", name);
}

static const char *folder_of(const char *path) {
	const char *slash = strrchr(path, '/');
	return th_format("%.*s", (int)(slash - path), path);
}

/* others reports whether another call has announced that it changes the database. It removes what dead calls have
 * left, if it may. */
static bool others(const database *db) {
	const char *folder = folder_of(db->path), *base = strrchr(db->path, '/') + 1;
	const char *prefix = th_format("%s-lock-", base), *own = db->lock ? strrchr(db->lock, '/') + 1 : "";
	DIR *d = opendir(folder);
	if (!d) return false;

	bool found = false;
	for (struct dirent *e; (e = readdir(d));) {
		if (strncmp(e->d_name, prefix, strlen(prefix)) || !strcmp(e->d_name, own)) continue;
		const char *path = th_format("%s/%s", folder, e->d_name);
		struct stat s;
		if (stat(path, &s)) continue;
		double until = (double)s.st_mtim.tv_sec + (strtod(e->d_name + strlen(prefix), NULL) + SLACK_MS) / 1000;
		if (seconds_now() < until) found = true;
		else if (db->lock) unlink(path);
	}
	closedir(d);
	return found;
}

const char *lock(database *db) {
	th_value context = th_context();
	int64_t limit = th_int(th_get(context, "timeout_ms"), 0);
	th_str id = th_string(th_get(context, "call_id"), "");
	const char *path = th_format("%s-lock-%lld-%s", db->path, (long long)(limit > 0 ? limit : 3600000), id.p);
	unsigned char noise = 0;
	for (double end = seconds_now() + WAIT_SECONDS; seconds_now() < end;) {
		unlink(path); /* of an attempt of this run that was killed: its age has to count anew */
		int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0) return th_format("cannot change %s: %s", db->name, strerror(errno));
		close(fd);
		db->lock = path;
		if (!others(db)) return NULL;

		unlock(db);
		for (size_t i = 0; i < id.n; i++) noise = (unsigned char)(noise * 31 + id.p[i]); /* so that two calls do not keep meeting */
		pause_ms(5 + noise % 64);
	}
	return th_format("%s is being changed by another call: try again", db->name);
}

void unlock(database *db) {
	if (db->lock) unlink(db->lock);
	db->lock = NULL;
}

/* read_start reads the first bytes of a file, and returns how many: below 0 if it cannot be read. */
static ssize_t read_start(const char *path, char *p, size_t n) {
	int fd = open(path, O_RDONLY);
	if (fd < 0) return -1;
	ssize_t got = read(fd, p, n);
	close(fd);
	return got;
}

/* A header is the start of a journal: magic, number of pages, and a random number that is another one for each change. */
typedef struct {
	char bytes[16];
} header;

/* journal_of reads the header of the journal. SQLite changes the file only while there is one; before and after,
 * the journal is missing or begins as zeros. */
static bool journal_of(const char *path, header *h) {
	memset(h, 0, sizeof *h);
	return read_start(th_format("%s-journal", path), h->bytes, sizeof h->bytes) > 0 && h->bytes[0];
}

/* note_stamp reads what tells one state of the file from another. */
static bool note_stamp(const char *path, database *db, bool *changing) {
	header h;
	*changing = journal_of(path, &h);
	memset(&db->stamp, 0, sizeof db->stamp);
	struct stat s;
	if (stat(path, &s)) return false;
	db->stamp.size = s.st_size;
	db->stamp.modified = s.st_mtim;
	return read_start(path, db->stamp.header, sizeof db->stamp.header) >= 0;
}

const char *check(const database *db, bool may_be_missing) {
	char header[28] = "";
	ssize_t n = read_start(db->path, header, sizeof header);
	if (n < 0 && may_be_missing) return NULL;
	if (n < 0) {
		th_json names = {0};
		put_databases(&names, NULL);
		return th_format("there is no database %s in " FOLDER ": there are %.*s", db->name, (int)names.n, names.p);
	}
	if (n > 18 && header[18] == 2)
		return th_format("%s is in WAL mode, which this tool cannot open: run PRAGMA journal_mode = DELETE with another SQLite first", db->name);
	return NULL;
}

/* cut_off reports whether a change was begun by a call that is gone: the same journal is there before and after a
 * moment in which nobody announces a change. Seen once, it may be of a call that ended just then. */
static bool cut_off(const database *db) {
	header before, after;
	return journal_of(db->path, &before) && !others(db) && journal_of(db->path, &after) &&
	       !memcmp(&before, &after, sizeof before);
}

const char *begin_reading(database *db) {
	for (double end = seconds_now() + WAIT_SECONDS;;) {
		bool changing;
		if (!note_stamp(db->path, db, &changing) || !changing) return check(db, false);
		if (cut_off(db)) return th_format("a change of %s was cut off: call execute once, with any statement, to undo it", db->name);
		if (seconds_now() >= end) return th_format("%s is being changed by another call: try again", db->name);
		pause_ms(20);
	}
}

bool unchanged(const database *db) {
	database now = *db;
	bool changing;
	return note_stamp(db->path, &now, &changing) && !changing && !memcmp(&now.stamp, &db->stamp, sizeof now.stamp);
}

void put_databases(th_json *j, const char *key) {
	th_put_array(j, key);
	DIR *d = opendir(FOLDER);
	int shown = 0;
	for (struct dirent *e; d && shown < 100 && (e = readdir(d));) {
		char magic[16] = "";
		if (read_start(th_format(FOLDER "/%s", e->d_name), magic, sizeof magic) != sizeof magic || memcmp(magic, "SQLite format 3", 16)) continue;
		th_put_string(j, NULL, e->d_name);
		shown++;
	}
	if (d) closedir(d);
	th_end(j);
}
