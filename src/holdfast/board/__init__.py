"""The kanban board: tasks, their runs, and who may move them where."""
