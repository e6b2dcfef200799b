-- A bank: what is in its accounts all together never changes.
CREATE DATABASE IF NOT EXISTS bank;
USE bank;
CREATE TABLE account (
    id INT NOT NULL PRIMARY KEY,
    owner VARCHAR(20) NOT NULL,
    branch INT NOT NULL,
    balance DECIMAL(14, 2) NOT NULL
);
CREATE TABLE transfer (
    id BIGINT NOT NULL PRIMARY KEY,
    from_id INT NOT NULL,
    to_id INT NOT NULL,
    amount DECIMAL(14, 2) NOT NULL
);
