"""The catalogue of agent CLIs, as data. Each CLI has one record (how to start it, where it keeps its state),
a parser for its events, and the error texts it prints. Add a new CLI here and nowhere else, or with a TOML
record: `records/` holds the ones we ship. Qwen Code, a descendant of Gemini, is in Gemini's file.

Imports: agents.evidence, decoding, doctor.explain, egress, egress.keys, errors, home, local, sandbox.policy,
wire.
Open to other rooms: agent, answers, catalog, hostfiles, keptkeys, known, output, providerhosts, screens.
"""
