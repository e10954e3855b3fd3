"""DuoDecoding: a draft beside the target, whose budget several sequences share; and its claims."""
