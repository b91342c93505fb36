"""What `holdfast exec` does: what is asked for (`wish`), one command, here (`run`) or on another machine
(`remote`), what is asked meanwhile (`asking`), and what is said at its end (`outcome`).
"""
