/* Database files in the granted folder: who may change one, and whether one has changed. */
#include <stdbool.h>
#include <time.h>

#include "toolhost.h"

#define FOLDER "/data"

/* A database file that is in use. */
typedef struct {
	const char *path, *name;
	const char *lock; /* of the call that changes the file; NULL for one that reads */
	struct {
		long long size;
		struct timespec modified;
		char header[28]; /* which has SQLite's counter of changes */
	} stamp;
} database;

/* find returns the path of a database, or NULL with *problem. */
const char *find(const char *name, const char **problem);

/* lock makes this call the only one that changes the database. It waits for others, and returns what is wrong
 * if they take too long. */
const char *lock(database *db);
void unlock(database *db);

/* check says what is wrong with a database that cannot be opened: it is missing, or written ahead of time. */
const char *check(const database *db, bool may_be_missing);

/* begin_reading notes how the file is, once nobody changes it. It returns what is wrong if that takes too long. */
const char *begin_reading(database *db);

/* unchanged reports whether the file is still as begin_reading has noted it: what was read in between is consistent. */
bool unchanged(const database *db);

/* put_databases writes the names of the databases in the folder. */
void put_databases(th_json *j, const char *key);

void pause_ms(int64_t ms);
double seconds_now(void);
