-- One statement from its name to its query is a line: test.sh reads the query to compare the view with it.
CREATE MATERIALIZED VIEW bank.totals WITH (job = 'bank') AS SELECT count(*) AS accounts, sum(balance) AS total FROM bank.account;
CREATE MATERIALIZED VIEW bank.by_branch WITH (job = 'bank') AS SELECT branch, count(*) AS accounts, sum(balance) AS total FROM bank.account GROUP BY branch;
CREATE MATERIALIZED VIEW bank.received WITH (job = 'bank') AS SELECT a.id, a.owner, count(t.id) AS transfers, sum(t.amount) AS amount FROM bank.account a LEFT JOIN bank.transfer t ON t.to_id = a.id GROUP BY a.id, a.owner;
