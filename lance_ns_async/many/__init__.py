"""Operations on many tables at once."""
