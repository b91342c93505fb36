"""What `holdfast exec` does: parse the options (`wish`), run one command here (`run`) or on another machine
(`remote`), ask the user questions meanwhile (`asking`), and report the outcome at the end (`outcome`).
"""
