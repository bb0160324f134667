CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT, city TEXT);
CREATE TABLE purchase(id INTEGER PRIMARY KEY, customer INTEGER, item INTEGER, amount REAL);
CREATE TABLE item(id INTEGER PRIMARY KEY, title TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400)
  INSERT INTO customer SELECT i, 'customer ' || i, 'city ' || (i * 7 % 23) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150)
  INSERT INTO item SELECT i, printf('item %04d', i), (i * 37 % 1000) / 10.0 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)
  INSERT INTO purchase SELECT i, i * 131 % 400 + 1, i * 31 % 150 + 1, i % 9 + 1 FROM n;
CREATE INDEX purchase_customer ON purchase(customer);
WITH totals AS (
  SELECT c.city, i.title, sum(p.amount * i.price) AS total, count(*) AS n
  FROM customer c JOIN purchase p ON p.customer = c.id JOIN item i ON i.id = p.item
  WHERE c.name LIKE '%1%' OR i.price > 20 GROUP BY c.city, i.title)
SELECT group_concat(city || ' ' || title || ' ' || printf('%.2f', total), '; ')
  FROM (SELECT * FROM totals WHERE n > 1 ORDER BY total DESC, city LIMIT 20);
