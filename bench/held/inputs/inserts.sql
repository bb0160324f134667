CREATE TABLE event(id INTEGER PRIMARY KEY, at INTEGER, kind TEXT, body TEXT);
CREATE INDEX event_at ON event(at);
CREATE INDEX event_kind ON event(kind, at);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000)
  INSERT INTO event SELECT i, i * 7919 % 100003, 'kind ' || (i % 17), 'body of ' || i || hex(i * 65537) FROM n;
UPDATE event SET body = body || '.' WHERE at % 3 = 0;
DELETE FROM event WHERE kind = 'kind 5';
COMMIT;
SELECT count(*) || ' ' || sum(at) || ' ' || sum(length(body)) || ' ' || max(kind) FROM event WHERE at BETWEEN 1000 AND 90000;
