-- Where what is promised, or is to be called, stands in its trace (W3C Trace Context): 16 bytes of the trace's id, 8 of
-- the span's, 1 of flags. Null when it is not traced.
ALTER TABLE outbox ADD COLUMN trace BLOB;
ALTER TABLE task ADD COLUMN trace BLOB;
