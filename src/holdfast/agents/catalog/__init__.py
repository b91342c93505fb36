"""What is known about each agent CLI, as data: one record per CLI (how it is started, where it keeps its
state), the parser of its events, the texts it fails with. A new CLI is added here and nowhere else, or by
a record in TOML: `records/` has those that we ship; Qwen Code, a descendant of Gemini, is in its file.

Imports: agents.evidence, decoding, doctor.explain, egress, egress.keys, errors, home, local, sandbox.policy,
wire.
Open to other rooms: agent, answers, catalog, hostfiles, keptkeys, known, output, providerhosts, screens.
"""
