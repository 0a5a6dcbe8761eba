-- Ids of messages begin with the time of their saga, so that the oldest marks of a step stand first. An index by age costs
-- as much as the marks themselves.
DROP INDEX inbox_by_age;
