"""What `holdfast exec` does: one command, here (`run`) or on another machine (`remote`), and what is said at
its end (`outcome`).
"""
