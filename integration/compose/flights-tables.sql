-- Flights from New York and their airlines; the rows are those of examples/data.
CREATE DATABASE IF NOT EXISTS flights;
USE flights;
CREATE TABLE airlines (
    carrier VARCHAR(2) NOT NULL PRIMARY KEY,
    name VARCHAR(64) NOT NULL
);
CREATE TABLE flights (
    time_hour DATETIME NOT NULL,
    carrier VARCHAR(2) NOT NULL,
    flight INT NOT NULL,
    origin VARCHAR(3) NOT NULL,
    dest VARCHAR(3) NOT NULL,
    dep_delay INT,
    arr_delay INT,
    distance INT NOT NULL,
    PRIMARY KEY (time_hour, carrier, flight, origin)
);
