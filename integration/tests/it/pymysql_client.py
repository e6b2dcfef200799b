"""PyMySQL against a Tidemill server: types, transactions, conflicts, errors."""

import datetime
import decimal
import sys

import pymysql

PORT = int(sys.argv[1])


def connect(**options):
    return pymysql.connect(host="127.0.0.1", port=PORT, user="root", database="test", **options)


# Bytes go raw, as `_binary'...'`; without the introducer they would have to be UTF-8.
one, two = connect(binary_prefix=True), connect()
with one.cursor() as cursor:
    cursor.execute(
        "CREATE TABLE p (id BIGINT UNSIGNED PRIMARY KEY, i INT, d DECIMAL(20,4), f DOUBLE, s VARCHAR(20), "
        "b VARBINARY(10), day DATE, at DATETIME(6))"
    )
    row = (
        2**64 - 1,
        -5,
        decimal.Decimal("12345678901234.5678"),
        0.1,
        "naïve 日本",
        b"\x00\x7f\x80\xff\\\'\"\n",
        datetime.date(2013, 2, 8),
        datetime.datetime(2013, 2, 8, 1, 2, 3, 456789),
    )
    cursor.execute("INSERT INTO p VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", row)
    cursor.execute("INSERT INTO p (id) VALUES (1)")
one.commit()
with two.cursor() as cursor:
    cursor.execute("SELECT * FROM p ORDER BY id DESC")
    rows = cursor.fetchall()
    assert rows[0] == row, rows[0]
    assert rows[1] == (1, None, None, None, None, None, None, None), rows[1]
two.commit()

# A conflict at commit: the second committer loses with 9007.
with one.cursor() as first, two.cursor() as second:
    first.execute("UPDATE p SET i = 1 WHERE id = 1")
    second.execute("UPDATE p SET i = 2 WHERE id = 1")
one.commit()
try:
    two.commit()
    raise AssertionError("the conflict was not seen")
except pymysql.err.MySQLError as error:
    assert error.args[0] == 9007, error.args
two.rollback()

for statement, code in [
    ("SELECT nothing FROM p", 1054),
    ("SELECT * FROM nothing", 1146),
    ("SELEC 1", 1064),
    ("INSERT INTO p (id) VALUES (1)", 1062),
    ("INSERT INTO p (id, s) VALUES (7, 'much longer than twenty characters')", 1406),
]:
    with one.cursor() as cursor:
        try:
            cursor.execute(statement)
            raise AssertionError(statement + " was accepted")
        except pymysql.err.MySQLError as error:
            assert error.args[0] == code, (statement, error.args)
    one.rollback()

with one.cursor(pymysql.cursors.DictCursor) as cursor:
    cursor.execute("CREATE MATERIALIZED VIEW pv AS SELECT count(*) AS n, sum(i) AS total FROM p")
    cursor.execute("SELECT * FROM pv")
    assert cursor.fetchall() == [{"n": 2, "total": decimal.Decimal("-4")}], cursor.fetchall()
    cursor.execute("SHOW TABLES")
    names = {value for found in cursor.fetchall() for value in found.values()}
    assert {"p", "pv"} <= names, names
one.ping(reconnect=False)
one.close()
two.close()
print("all is well")
