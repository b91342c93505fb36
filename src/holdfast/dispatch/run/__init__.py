"""One run of one task: its workspace, its scripts, its worker, its checks, what it uses and what it changed.
`run.RunDriver` takes the steps that `rules.runsteps` names.

Imports: agents.catalog, agents.changes, agents.evidence, agents.fleet, agents.supervisor, agents.worker,
board, board.rules, board.verbs, client, decoding, dispatch, dispatch.rules, errors, handoff, local.
Open to other rooms: run, workspace.
"""
