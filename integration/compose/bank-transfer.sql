-- One transfer; test.sh puts in the numbers.
BEGIN;
UPDATE bank.account SET balance = balance - :amount WHERE id = :from;
UPDATE bank.account SET balance = balance + :amount WHERE id = :to;
INSERT INTO bank.transfer VALUES (:id, :from, :to, :amount);
COMMIT;
