"""What an executor and its clients need to meet: a registry asked, a relay dialled, when to try again."""
