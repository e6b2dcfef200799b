-- One statement from its name to its query is a line: test.sh reads the query to compare the view with it.
CREATE MATERIALIZED VIEW flights.totals WITH (job = 'flights') AS SELECT count(*) AS flights, count(dep_delay) AS departed, sum(dep_delay) AS delay FROM flights.flights;
CREATE MATERIALIZED VIEW flights.by_carrier WITH (job = 'flights') AS SELECT f.carrier, a.name, count(*) AS flights, avg(f.dep_delay) AS avg_delay, max(f.dep_delay) AS max_delay FROM flights.flights f JOIN flights.airlines a ON f.carrier = a.carrier GROUP BY f.carrier, a.name;
CREATE MATERIALIZED VIEW flights.by_route WITH (job = 'flights') AS SELECT origin, dest, count(*) AS flights, sum(distance) AS miles FROM flights.flights GROUP BY origin, dest;
CREATE MATERIALIZED VIEW flights.late WITH (job = 'flights') AS SELECT f.time_hour, f.carrier, f.flight, f.origin, f.dest, f.arr_delay FROM flights.flights f WHERE f.arr_delay > 60;
