-- Questions and connections, let through and refused: each of the four keeps its newest lines, so that no guest hides
-- where it went behind what it asked for.
create index egress_log_part on egress_log (session_id, (kind = 'dns'), decision, seq desc);
